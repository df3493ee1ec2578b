"""Repeats of logged calls: the same bytes, differences by name, torn and damaged logs, and the scores of a session."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.types import Store
from keystone.retrieval.backends import open_store
from keystone.runs.cli.commands.serve_command import replay
from keystone.runs.serving.agents.replay import (
    Judged,
    LoggedCall,
    Stage,
    Unit,
    describe_difference,
    locate,
    read_calls,
    read_relevant,
    read_wanted_nuggets,
)
from keystone.runs.serving.agents.replay import score_session as score
from keystone.runs.serving.app import open_fronts
from keystone.runs.serving.call_log import Call, Reply, log_call, open_call_log
from keystone.runs.serving.service import Service
from keystone.runs.serving.web.front import stream_events
from tests.support.indexes.small_corpus import NARRATIVES

CALLS = (
    Call("mcp", "decompose", {"narrative": NARRATIVES["1"]}, "s1"),
    Call("mcp", "search", {"query": "honey bees", "k": 3}, "s1"),
    Call("mcp", "search", {"query": NARRATIVES["2"], "method": "decomposed", "budget_tokens": 200}, "s1"),
    Call("mcp", "fetch_document", {"id": "bees", "start": 10}, "s1"),
    Call("mcp", "fetch_segment", {"id": "flowers#w0_0"}, "s1"),
    Call("mcp", "fetch_segment", {"id": "moon"}, "s1"),
    Call("mcp", "answer", {"narrative": NARRATIVES["1"]}, "s1"),
    Call("web", "answer", {"narrative": NARRATIVES["1"]}, "s1"),
    Call("web", "document", {"id": "bees"}, "s1"),
)
STREAMED = Call("web", "answer", {"narrative": NARRATIVES["2"]}, "s1")
LINES = len(CALLS) + 1
QRELS = "1 0 bees 3\n1 0 beekeeping 2\n1 0 flowers 1\n1 0 wasps 0\n2 0 volcano 2\n"


@pytest.fixture(scope="module")
def session(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a session with the default settings."""
    path = tmp_path_factory.mktemp("session") / "calls.jsonl"
    fronts = open_fronts(service)

    async def perform() -> None:
        for call in CALLS:
            log_call(log, call, await fronts[call.front].perform(call))
        assert [event.event async for event in stream_events(replace(service, log=log), STREAMED)][-1] == "done"

    with open_call_log(path, service.log.index_key, service.log.settings_key) as log:
        asyncio.run(perform())
    return path


def edit(session: Path, path: Path, number: int, /, **values: Any) -> Path:
    """Write the log again with other values in the line of this number."""
    lines = session.read_bytes().splitlines()
    lines[number - 1] = orjson.dumps(orjson.loads(lines[number - 1]) | values)
    path.write_bytes(b"\n".join([*lines, b""]))
    return path


@pytest.mark.slow
def test_a_session_repeats_byte_for_byte_and_is_scored(
    session: Path, index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (qrels := tmp_path / "qrels.txt").write_text(QRELS)
    replay(session, index.folder, qrels=qrels, topic="1")
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[:2] == [f"{LINES} of {LINES} calls have replies of the same bytes", ""]
    assert lines[2].split() == "stage unit found relevant precision wanted covered recall".split()
    table = {tuple(line.split()[:2]): line.split()[2:] for line in lines[3:]}
    assert list(table) == [
        (stage, unit) for stage in ("surfaced", "read", "cited") for unit in ("documents", "segments")
    ]
    assert table["read", "documents"] == ["2", "2", "1.0000", "3", "2", "0.6667"]
    assert err == ""


@pytest.mark.slow
def test_a_reply_of_other_bytes_is_named_and_fails(
    session: Path, index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    surfaced = ["wasps#w0_0", "bees#w0_0"]
    log = edit(session, tmp_path / "calls.jsonl", 2, bytes=7, sha256="0", surfaced=surfaced)
    with log.open("ab") as file:
        file.write(b'{"index": "torn')
    with pytest.raises(typer.Exit) as raised:
        replay(log, index.folder)
    assert raised.value.exit_code == 1
    out, err = capsys.readouterr()
    first, last = out.splitlines()
    assert first.startswith(f"{log}:2: mcp search: the reply differs: 7 bytes in the log, ")
    assert "; surfaced 1: 'wasps#w0_0' in the log, 'bees#w0_0' now" in first
    assert last == f"{LINES - 1} of {LINES} calls have replies of the same bytes"
    assert err == f"{log}:{LINES + 1}: left out 15 bytes of a torn line\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "values"),
    [
        pytest.param(8, {"arguments": {}}, id="no narrative"),
        pytest.param(8, {"arguments": {"narrative": 1}}, id="a number"),
        pytest.param(8, {"operation": "guess"}, id="an unknown operation of the page"),
        pytest.param(1, {"front": "rest", "operation": "guess"}, id="an unknown operation of REST"),
        pytest.param(1, {"front": "rest", "operation": "search", "arguments": {"query": ["bees"]}}, id="a list"),
    ],
)
def test_a_line_that_no_server_wrote_is_an_error_that_names_it(
    session: Path, index: Index, tmp_path: Path, number: int, values: dict[str, Any]
) -> None:
    log = edit(session, tmp_path / "calls.jsonl", number, **values)
    with pytest.raises(UserError, match=rf"calls.jsonl:{number}: .*: expected an operation and arguments as a server"):
        replay(log, index.folder, session="s1")


@pytest.mark.slow
def test_one_of_several_sessions_is_repeated(
    session: Path, index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = edit(session, tmp_path / "calls.jsonl", 2, session="s2", sha256="0")
    replay(log, index.folder, session="s1")
    assert capsys.readouterr().out == f"{LINES - 1} of {LINES - 1} calls have replies of the same bytes\n"
    with pytest.raises(UserError, match=r"--session: found 's3', expected a session of .*calls.jsonl: s1, s2"):
        replay(log, index.folder, session="s3")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index", "settings"])
def test_a_log_of_another_index_or_setting_is_an_error_unless_asked(
    session: Path, index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    log = edit(session, tmp_path / "calls.jsonl", 3, **{name: "other"})
    with pytest.raises(UserError, match=rf"calls.jsonl:3: {name}: found the key other, expected .*--allow-other"):
        replay(log, index.folder)
    replay(log, index.folder, allow_other=True)
    assert f"{LINES} of {LINES} calls" in capsys.readouterr().out


LINE: Mapping[str, Any] = {
    "index": "i", "settings": "s", "front": "mcp", "session": "", "operation": "search", "arguments": {}, "status": 200,
    "bytes": 1, "sha256": "0", "surfaced": ["d1", "d2"], "read": [], "cited": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(b"{", "the line: Invalid JSON", id="no JSON"),
        pytest.param(b"[]", "the line: Input should be an object", id="no object"),
        pytest.param(orjson.dumps({**LINE, "read": "d1"}), "read: Input", id="no list"),
        pytest.param(orjson.dumps({**LINE, "bytes": "1"}), "bytes: Input", id="text"),
    ],
)
def test_a_damaged_line_is_an_error_that_names_it(tmp_path: Path, line: bytes, message: str) -> None:
    (log := tmp_path / "calls.jsonl").write_bytes(b"\n".join([orjson.dumps(LINE), line, orjson.dumps(LINE), b""]))
    with pytest.raises(UserError, match=f"calls.jsonl:2: not a logged call: {message}"):
        read_calls(log)


@pytest.mark.slow
def test_every_beginning_of_a_log_is_read_up_to_its_torn_line(tmp_path: Path) -> None:
    whole = (orjson.dumps(LINE) + b"\n") * 2
    length = len(whole) // 2
    for end in range(len(whole) + 1):
        (log := tmp_path / "calls.jsonl").write_bytes(whole[:end])
        calls, torn = read_calls(log)
        complete, left = divmod(end, length)
        last = left == length - 1  # only the line end is missing
        assert len(calls) == complete + last
        assert bool(torn) == (left > 0 and not last)


def test_a_line_that_is_torn_by_another_one_is_lost_alone(tmp_path: Path) -> None:
    line, log = orjson.dumps({"time": 1.5, **LINE}), tmp_path / "calls.jsonl"
    for cut in range(1, len(line)):
        log.write_bytes(b"\n".join([line, line[:cut] + line, line[cut:], line, b""]))
        calls, torn = read_calls(log)
        assert [*calls] == [1, 2, 4]
        rest = f"{len(line) - cut} byte{'s' if len(line) - cut > 1 else ''}"
        assert torn == [
            f"{log}:2: left out {cut} byte{'s' if cut > 1 else ''} of a torn line",
            f"{log}:3: left out {rest} of a torn line",
        ]


@pytest.mark.parametrize("lines", [[LINE], [LINE, "torn"], ["torn", LINE]])
def test_a_damaged_line_that_no_other_one_tore_is_refused(lines: list[Any], tmp_path: Path) -> None:
    line, log = orjson.dumps({"time": 1.5, **LINE}), tmp_path / "calls.jsonl"
    whole = [line[:9] + line if one == "torn" else line for one in lines]
    log.write_bytes(b"\n".join([*whole, line.replace(b",", b"", 1), line, b""]))
    with pytest.raises(UserError, match=f"calls.jsonl:{len(lines) + 1}: not a logged call: the line: Invalid JSON"):
        read_calls(log)


@pytest.mark.parametrize(
    ("surfaced", "said"),
    [
        pytest.param(["d1", "d3"], "surfaced 2: 'd2' in the log, 'd3' now", id="another id"),
        pytest.param(["d1"], "surfaced 2: 'd2' in the log, none now", id="fewer"),
        pytest.param(["d1", "d2", "d3"], "surfaced 3: none in the log, 'd3' now", id="more"),
        pytest.param(["d1", "d2"], "1 byte in the log, 2 now", id="only the bytes"),
    ],
)
def test_a_difference_names_the_first_other_id(surfaced: list[str], said: str) -> None:
    difference = describe_difference(LoggedCall(**LINE), Reply(b"{}", surfaced=surfaced))
    assert difference.startswith("1 byte in the log, 2 now")
    assert difference.endswith(said)


BEES, FLOWERS, WASPS = "bees#w0_0", "flowers#w0_0", "wasps#w0_0"


@pytest.fixture(scope="module")
def store(index: Index) -> Store:
    return open_store(index)


def score_ids(
    store: Store, judged: Judged, surfaced: str = "", read: str = "", cited: str = ""
) -> dict[tuple[Stage, Unit], tuple[int, ...]]:
    """Found, relevant, wanted, and wanted and found, by stage and unit."""
    ids: dict[Stage, list[str]] = {"surfaced": surfaced.split(), "read": read.split(), "cited": cited.split()}
    scores = score(locate(ids, store), judged)
    return {(one.stage, one.unit): (one.found, one.relevant, one.wanted, one.covered) for one in scores}


def test_documents_are_scored_by_their_grades(store: Store, tmp_path: Path) -> None:
    (qrels := tmp_path / "qrels.txt").write_text(QRELS)
    judged = read_relevant(qrels, "1", 1, store)
    found = score_ids(store, judged, f"{BEES} {FLOWERS} {WASPS} {BEES}", "bees", "volcano")
    assert found["surfaced", "documents"] == (3, 2, 3, 2)
    assert found["surfaced", "segments"] == (3, 2, 3, 2)
    assert found["read", "documents"] == (1, 1, 3, 1)
    assert found["cited", "documents"] == (1, 0, 3, 0)
    assert read_relevant(qrels, "1", 2, store).documents == judged.documents[:2]


def test_a_share_of_nothing_is_no_number(store: Store, tmp_path: Path) -> None:
    (qrels := tmp_path / "qrels.txt").write_text("1 0 bees 1\n")
    first = score(locate({}, store), read_relevant(qrels, None, 1, store))[0]
    assert (first.precision, first.recall) == (None, 0.0)


def test_judged_segments_count_by_their_ids_and_their_documents(store: Store, tmp_path: Path) -> None:
    (qrels := tmp_path / "qrels.txt").write_text(f"1 0 {BEES} 1\n1 0 elsewhere#1_2 1\n")
    judged = read_relevant(qrels, None, 1, store)
    found = score_ids(store, judged, f"{BEES} flowers")
    assert found["surfaced", "documents"] == (2, 1, 2, 1)
    assert found["surfaced", "segments"] == (2, 1, 2, 1)


def test_nuggets_are_found_at_their_place(store: Store, tmp_path: Path) -> None:
    (nuggets := tmp_path / "nuggets.jsonl").write_text(
        '{"topic_id": "1", "text": "a queen", "doc_id": "bees", "start": 60, "end": 83}\n'
        '{"topic_id": "1", "text": "mites", "doc_id": "beekeeping"}\n'
    )
    judged = read_wanted_nuggets(nuggets, None)
    found = score_ids(store, judged, BEES, WASPS, "beekeeping")
    assert found["surfaced", "segments"] == (1, 1, 2, 1)
    assert found["read", "documents"] == (1, 0, 2, 0)
    assert found["cited", "segments"] == (1, 1, 2, 1)


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        pytest.param(None, "--topic: found none, expected a topic of {}: 1, 2", id="no topic, and two to choose from"),
        pytest.param("9", "--topic: found '9', expected a topic of {}: 1, 2", id="an unknown topic"),
    ],
)
def test_an_error_names_the_topics_of_the_judgments(
    store: Store, tmp_path: Path, topic: str | None, message: str
) -> None:
    (qrels := tmp_path / "qrels.txt").write_text(QRELS)
    with pytest.raises(UserError) as raised:
        read_relevant(qrels, topic, 1, store)
    assert str(raised.value) == message.format(qrels)


def test_an_id_that_the_index_lacks_is_an_error(store: Store) -> None:
    with pytest.raises(UserError, match="the log names 'moon', which is no document and no segment of the index"):
        locate({"read": ["moon"]}, store)
