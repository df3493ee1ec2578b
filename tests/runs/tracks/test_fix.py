"""Repairs: each change is reported, kept parts keep their meaning, and repaired files are valid."""

import gzip
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.retrieval.types import Topic
from keystone.runs.track_rules import TRACKS, Track
from keystone.runs.tracks.answer_files import map_citations, resolve_citation
from keystone.runs.tracks.check_run import parse_score
from keystone.runs.tracks.fix import fix_record
from keystone.runs.tracks.validate import fix, validate
from tests.support.runs.answer_files import (
    FILE,
    HOW,
    NEWS,
    REPAIRABLE,
    WHY,
    make_line,
    make_record,
    make_sentences,
    tighten_limits,
)
from tests.support.runs.command_line import keystone

A, B, C, D = (f"msmarco_v2.1_doc_00_1#{n}_7" for n in range(4))
Mend = Callable[..., tuple[list[str], list[str], list[str]]]


@pytest.fixture
def mended(tmp_path: Path) -> Mend:
    """Return a function that repairs lines: to the new lines, the repairs, and messages of the violations left."""

    def mend(lines: list[str], track: Track, name: str = "x") -> tuple[list[str], list[str], list[str]]:
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        repairs, left = fix(tmp_path / name, tmp_path / "out", track, [WHY])
        assert (tmp_path / name).read_text() == "".join(f"{line}\n" for line in lines)
        messages = [f"{repair.line}: {repair.message}" for repair in repairs]
        return (tmp_path / "out").read_text().splitlines(), messages, [v.message for v in left.violations]

    return mend


def test_citations_follow_their_documents_when_references_are_merged(mended: Mend) -> None:
    """The published tool leaves [3, 1], [2] here. Then 2 names C, and 3 names no reference."""
    given_ = make_line(
        references=[A, B, A, C], answer=[*make_sentences(citations=[3, 1]), *make_sentences(citations=[2])]
    )
    (line,), repairs, wrong = mended([given_], TRACKS["rag25"])
    record = json.loads(line)
    assert record["references"] == [A, B, C]
    assert [sentence["citations"] for sentence in record["answer"]] == [[2, 1], [0]]
    assert repairs == [
        "1: references: 1 repeated reference merged",
        "1: answer[0].citations: [3, 1] is now [2, 1]",
        "1: answer[1].citations: [2] is now [0]",
    ]
    assert wrong == []


SHORT = replace(TRACKS["rag25"], references=2, length=replace(TRACKS["rag25"].length, limit=5))


@pytest.mark.parametrize(
    ("track", "line", "expected", "repair"),
    [
        pytest.param(
            SHORT,
            make_line(references=[A, B, C], answer=make_sentences(citations=[2, 1])),
            {"references": [B, C], "answer": make_sentences(citations=[1, 0])},
            "references: 1 cut",
            id="beyond the limit, an uncited reference goes first",
        ),
        pytest.param(
            SHORT,
            make_line(references=[A, B, C], answer=make_sentences(citations=[2, 1, 0])),
            {"references": [A, B], "answer": make_sentences(citations=[1, 0])},
            "references: 1 cut",
            id="beyond the limit, the last reference goes with its citations",
        ),
        pytest.param(
            SHORT,
            make_line(references=[A], answer=make_sentences(citations=[A, B])),
            {"references": [A, B], "answer": make_sentences(citations=[A, B])},
            "references: 1 cited reference added",
            id="an id that is cited and no reference",
        ),
        pytest.param(
            SHORT,
            make_line(answer=make_sentences(citations=[0, 9, 1, 0, -1])),
            {"answer": make_sentences(citations=[0, 1])},
            "[0, 9, 1, 0, -1] is now [0, 1]",
            id="repeated citations and citations without reference",
        ),
        pytest.param(
            SHORT,
            make_line(answer=[*make_sentences(text="a b"), *make_sentences(text="c d"), *make_sentences(text="e f")]),
            {"answer": [*make_sentences(text="a b"), *make_sentences(text="c d")]},
            "the last 1 of 3 sentences cut",
            id="too many words",
        ),
        pytest.param(
            SHORT,
            make_line(answer=[*make_sentences(text=" "), *make_sentences()]),
            {"answer": make_sentences()},
            "without text dropped",
            id="no text",
        ),
        pytest.param(
            SHORT,
            make_line(answer=[{"text": "So."}]),
            {"answer": make_sentences(text="So.", citations=[])},
            "missing, now an empty list",
            id="no list of citations",
        ),
        pytest.param(
            SHORT,
            make_line(metadata__narrative=None),
            {"metadata": make_record("rag25")["metadata"]},
            "filled in from the topics file",
            id="no narrative",
        ),
        pytest.param(
            SHORT,
            make_line(metadata__narrative=" WHY?\n"),
            {"metadata": make_record("rag25")["metadata"]},
            "made exact from the topics file",
            id="the narrative in other letters",
        ),
        pytest.param(
            SHORT,
            make_line(metadata__narrative_id=1),
            {"metadata": make_record("rag25")["metadata"]},
            "narrative_id: a number is now text",
            id="an id as a number",
        ),
        pytest.param(
            TRACKS["rag24"],
            make_line("rag24", response_length=None),
            {"response_length": 1},
            "response_length: None is now 1",
            id="no length",
        ),
        pytest.param(
            TRACKS["rag24"],
            make_line("rag24", references=[A, B], answer=make_sentences(citations=[B, A])),
            {"answer": make_sentences(citations=[1, 0])},
            "is now [1, 0]",
            id="ids where the track has positions",
        ),
        pytest.param(
            TRACKS["rag24"],
            make_line("rag24", references=[A, B], answer=make_sentences(citations={A: 0.5, B: 1})),
            {"answer": make_sentences(citations=[1, 0])},
            "is now [1, 0]",
            id="scores where the track has a list",
        ),
        pytest.param(
            TRACKS["rag26"],
            make_line("rag26", references=["a", "b", "c", "d"], answer=make_sentences(citations=[3, "a", 1, 2])),
            {"answer": make_sentences(citations=[3, 0, 1])},
            "is now [3, 0, 1]",
            id="too many citations, in two forms",
        ),
        pytest.param(
            TRACKS["ragtime26"],
            make_line("ragtime26", responses=[*make_sentences(citations={NEWS[0]: 1}), *make_sentences(citations=[])]),
            {"responses": [*make_sentences(citations={NEWS[0]: 1}), *make_sentences(citations={})]},
            "empty lists of citations are now empty objects",
            id="scores, and a sentence without citations",
        ),
        pytest.param(
            TRACKS["ragtime26"],
            make_line("ragtime26", references=None),
            {"references": list(NEWS)},
            "references: missing, now the 2 cited ids",
            id="no references",
        ),
        pytest.param(
            TRACKS["biogen"],
            make_line("biogen", references=None, responses=make_sentences(citations=[30000001, "7", 30000001])),
            {"responses": make_sentences(citations=["30000001", "7"])},
            "[30000001, '7', 30000001] is now ['30000001', '7']",
            id="PMIDs as numbers, listed nowhere",
        ),
        pytest.param(
            TRACKS["biogen"],
            make_line("biogen", references=["30000001", "7"], responses=make_sentences(citations=[7, 30000001])),
            {"responses": make_sentences(citations=["7", "30000001"])},
            "[7, 30000001] is now ['7', '30000001']",
            id="PMIDs as numbers, listed as texts",
        ),
        pytest.param(
            TRACKS["biogen"],
            make_line("biogen", references=["1", "2"], responses=make_sentences(citations=[1, 2])),
            {"responses": make_sentences(citations=["1", "2"])},
            "[1, 2] is now ['1', '2']",
            id="PMIDs that could be positions",
        ),
        pytest.param(
            TRACKS["responses"],
            make_line("responses", references=None, responses=make_sentences(citations=[30000001])),
            {"references": ["30000001"], "responses": make_sentences(citations=["30000001"])},
            "references: missing, now the 1 cited id",
            id="PMIDs as numbers, without a track",
        ),
        pytest.param(
            TRACKS["biogen"],
            make_line("biogen", references=[11, 12, 13], responses=make_sentences(citations=[13, 11])),
            {"references": ["11", "13"], "responses": make_sentences(citations=["13", "11"])},
            "references: numbers are now text",
            id="ids as numbers, and one that is not cited",
        ),
        pytest.param(
            TRACKS["responses"],
            make_line("responses", references=["a", "b", "a"], responses=make_sentences(citations={"b": 1, "z": 2.5})),
            {"references": ["a", "b", "z"], "responses": make_sentences(citations={"b": 1, "z": 2.5})},
            "references: 1 cited reference added, first 'z'",
            id="scores are kept",
        ),
    ],
)
def test_a_repairable_violation_is_repaired(
    mended: Mend, track: Track, line: str, expected: dict[str, Any], repair: str
) -> None:
    (found,), repairs, wrong = mended([line], track)
    assert json.loads(found) == json.loads(line) | expected
    assert any(repair in message for message in repairs), repairs
    assert [message for message in wrong if "not an id of the track's corpus" not in message] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        pytest.param("{", "not JSON", id="not JSON"),
        pytest.param(make_line(metadata__narrative_id="9"), "topic '9' is not in the topics file", id="unknown topic"),
        pytest.param(make_line(metadata__narrative="How?"), "differs from the topics file", id="another narrative"),
        pytest.param(make_line(metadata__team_id=None), "team_id: missing", id="no team"),
        pytest.param(make_line(metadata__type="magic"), "metadata.type: expected", id="an unknown type"),
        pytest.param(make_line(references=[None, A]), "references[0]: expected an id", id="a broken reference"),
        pytest.param(
            make_line(references=[A], answer=make_sentences(citations=[0, 1.5])), "found 1.5", id="a broken citation"
        ),
        pytest.param(
            make_line(answer=make_sentences(text="w " * 401)), "at most 400 words", id="one sentence that is too long"
        ),
    ],
)
def test_a_violation_that_cannot_be_repaired_stays_as_it_is(mended: Mend, line: str, wrong: str) -> None:
    found, repairs, left = mended([line], TRACKS["rag25"], "x.jsonl")
    assert (found, repairs) == ([line], [])
    assert any(wrong in message for message in left), left


def test_the_repairs_of_a_whole_answer_file(mended: Mend) -> None:
    other = make_line(metadata__run_id="s", metadata__narrative_id="2", metadata__narrative="How?")
    lines = [make_line(), "", make_line(references=[A, B], answer=make_sentences(citations=[B, A])), make_line(), other]
    found, repairs, left = mended(lines, TRACKS["rag25"])
    assert [json.loads(line)["answer"][0]["citations"] for line in found] == [[0, 1], [1, 0], [0, 1]]
    assert repairs == [
        "2: blank line dropped",
        f"3: answer[0].citations: ['{B}', '{A}'] is now [1, 0]",
        "4: dropped: it repeats line 1",
    ]
    assert left == [
        "topic '1' is already answered on line 1",
        "topic '2' is not in the topics file",
        "run_id: expected 'r' on every line, found 's'",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "expected", "repairs"),
    [
        pytest.param(
            ["1 Q0 a 0 0.5 t", "1 Q0 b 1 0.4 t"],
            ["1 Q0 a 1 0.5 t", "1 Q0 b 2 0.4 t"],
            ["1: topic '1': rank rewritten on 2 of its rows"],
            id="ranks from 0",
        ),
        pytest.param(
            ["1 Q0 b 2 0.4 t", "1 Q0 a 1 0.5 t"],
            ["1 Q0 a 1 0.5 t", "1 Q0 b 2 0.4 t"],
            ["1: topic '1': rows put in the order of their scores"],
            id="lines in another order than their ranks and scores",
        ),
        pytest.param(
            ["1 Q0 b 2 1 t", "1 Q0 a 1 1 t"],
            ["1 Q0 a 1 1 t", "1 Q0 b 2 0.99999994 t"],
            [
                "1: topic '1': rows put in the order of their scores",
                "1: topic '1': score rewritten on 1 of its rows",
            ],
            id="equal scores with different ranks",
        ),
        pytest.param(
            ["1 Q0 a 1 0.5 t", "2 Q0 a 1 7 t", "1 Q0 b 2 0.4 t"],
            ["1 Q0 a 1 0.5 t", "1 Q0 b 2 0.4 t", "2 Q0 a 1 7 t"],
            ["1: topic '1': its 2 rows put together"],
            id="rows of a topic that stand apart",
        ),
        pytest.param(
            ["1 Q0 a 1 0.5 t", "1 Q0 b 2 0.4 t", "1 Q0 a 3 0.3 t", "1 Q0 c 4 0.2 t"],
            ["1 Q0 a 1 0.5 t", "1 Q0 b 2 0.4 t", "1 Q0 c 3 0.2 t"],
            ["3: topic '1': 'a' dropped: line 1 ranks it higher", "4: topic '1': rank rewritten on 1 of its rows"],
            id="a document twice",
        ),
        pytest.param(
            [f"1 Q0 {name} {rank} -{rank} t" for rank, name in enumerate("abcde", start=1)],
            ["1 Q0 a 1 -1 t", "1 Q0 b 2 -2 t", "1 Q0 c 3 -3 t"],
            ["4: topic '1': 2 rows beyond the 3 best dropped"],
            id="too many rows",
        ),
        pytest.param(
            ["# by hand", "", "1\t0\ta\t1\t0.5\tt"],
            ["1 Q0 a 1 0.5 t"],
            ["1: comment dropped", "2: blank line dropped", "3: topic '1': second column rewritten on 1 of its rows"],
            id="comment, blank line, second column",
        ),
        pytest.param(
            ["\ufeff\ufeff1 Q0 a 1 2 t", "\ufeff1 Q0 b 2 1 t", "  \t# note"],
            ["1 Q0 a 1 2 t", "1 Q0 b 2 1 t"],
            ["1: byte order mark dropped", "2: byte order mark dropped", "3: comment dropped"],
            id="byte order marks, an indented comment",
        ),
        pytest.param(
            ["1 Q0 a 1 3.4028235e38 t", "1 Q0 b 2 3.4028235e38 t", "1 Q0 c\xa0d 3 1 t"],
            ["1 Q0 a 1 3.4028235e38 t", "1 Q0 b 2 3.40282326e+38 t", "1 Q0 c\xa0d 3 1 t"],
            ["2: topic '1': score rewritten on 1 of its rows"],
            id="the largest float32, an id with a no-break space",
        ),
        pytest.param(["1\tQ0\ta\t1\t5e-1\tt"], ["1\tQ0\ta\t1\t5e-1\tt"], [], id="a valid row"),
        pytest.param(
            ["1 Q0 a 1 0.4 t", "1 Q0 b 2 0.5 t"],
            ["1 Q0 a 1 0.4 t", "1 Q0 b 2 0.5 t"],
            [],
            id="ranks that contradict scores",
        ),
        pytest.param(
            ["1 Q0 a 0 nan t", "1 Q0", "1 Q0 b 1 1 u"],
            ["1 Q0 a 0 nan t", "1 Q0 b 1 1 u", "1 Q0"],
            [],
            id="an unusable score, a broken row, two tags",
        ),
    ],
)
def test_the_repairs_of_a_run(mended: Mend, lines: list[str], expected: list[str], repairs: list[str]) -> None:
    assert mended(lines, replace(TRACKS["rag25"], rows=3))[:2] == (expected, repairs)


IDS = st.sampled_from([f"msmarco_v2.1_doc_00_{n}#0_0" for n in range(6)])
CITATION = IDS | st.integers(-1, 8)
SENTENCE = st.fixed_dictionaries(
    {"text": st.sampled_from(["", " ", "One.", "Two w.", "3 w h."])},
    optional={
        "citations": st.lists(CITATION, max_size=5)
        | st.dictionaries(IDS, st.floats(allow_nan=False, allow_infinity=False), max_size=4)
    },
)


@given(
    st.sampled_from(list(TRACKS.values())).map(tighten_limits),
    st.lists(IDS, max_size=7),
    st.lists(SENTENCE, min_size=1, max_size=6),
)
def test_a_repaired_answer_has_the_text_and_the_documents_it_had(
    track: Track, references: list[str], answer: list[dict[str, Any]]
) -> None:
    given_ = orjson.loads(orjson.dumps(answer))
    record = make_record(track.name) | {"references": references, track.sentences: answer}
    fix_record(record, track, {"1": "Why?"})
    names_before, names = (map_citations(ids, track.integers) for ids in (references, record["references"]))
    filled = [sentence for sentence in given_ if sentence["text"].strip()]
    by_id = "positions" not in track.citations
    for before, after in zip(filled, record[track.sentences], strict=False):
        assert after["text"] == before["text"]
        cited = [resolve_citation(citation, names) for citation in after["citations"]]
        was = [
            resolve_citation(citation, names_before) or (str(citation) if by_id or isinstance(citation, str) else None)
            for citation in before.get("citations", [])
        ]
        assert None not in cited
        assert set(cited) <= set(was)
        if not isinstance(after["citations"], dict) and not isinstance(before.get("citations"), dict):
            kept = [name for name in dict.fromkeys(was) if name in cited]
            assert cited == kept
    assert not fix_record(record, track, {"1": "Why?"}), "a second repair found something to do"


@pytest.mark.slow
@given(
    st.sampled_from(list(TRACKS.values())).map(tighten_limits),
    st.lists(st.tuples(st.lists(IDS, max_size=7), st.lists(SENTENCE, max_size=6)), max_size=3),
)
def test_a_repaired_file_is_valid(
    tmp_path_factory: pytest.TempPathFactory, track: Track, parts: list[tuple[list[str], list[dict[str, Any]]]]
) -> None:
    folder = tmp_path_factory.mktemp("fix")
    records = [make_record(track.name) | {"references": r, track.sentences: a} for r, a in parts]
    (folder / "x.jsonl").write_bytes(b"\n".join(map(orjson.dumps, records)))
    _, left = fix(folder / "x.jsonl", folder / "out", track, [WHY])
    assert not {violation.kind for violation in left.violations} & REPAIRABLE


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["1", "2"]),
        st.sampled_from(["Q0", "0"]),
        st.sampled_from("abcdef"),
        st.integers(0, 6).map(str),
        st.sampled_from(["1", "0.5", "0.50", "5e-1", "-1e-3", "3.4e38", "nan"]),
        st.just("t"),
    ).map(" ".join),
    max_size=12,
)


def is_clear(rows: list[list[str]]) -> bool:
    """Whether all scores are usable, and ranks that all differ say the same as the scores."""
    told = [(int(fields[3]), parse_score(fields[4])) for fields in rows]
    if any(score is None for _, score in told):
        return False
    ranks = {rank for rank, _ in told}
    agree = all(s >= t for r, s in told for q, t in told if s is not None and t is not None and r < q)
    return len(ranks) < len(told) or agree


@pytest.mark.slow
@given(ROWS)
def test_a_repaired_run_ranks_as_it_did(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    folder, track = tmp_path_factory.mktemp("run"), replace(TRACKS["responses"], rows=4)
    (folder / "x").write_text("\n".join(lines))
    fix(folder / "x", folder / "out", track, [WHY, HOW])
    after = [line.split() for line in (folder / "out").read_text().splitlines()]
    for topic in ("1", "2"):
        before = [fields for fields in map(str.split, lines) if fields[0] == topic]
        own = [fields for fields in after if fields[0] == topic]
        if not is_clear(before):
            assert [fields[2:] for fields in own] == [fields[2:] for fields in before]
            continue
        best: dict[str, float] = {}
        for fields in before:
            best[fields[2]] = max(float(fields[4]), best.get(fields[2], -9))
        assert [best[fields[2]] for fields in own] == sorted(best.values(), reverse=True)[:4]
        assert [fields[3] for fields in own] == ["1", "2", "3", "4"][: len(own)]
        scores = [float(fields[4]) for fields in own]
        assert all(low < high for high, low in itertools.pairwise(scores))
    assert fix(folder / "out", folder / "again", track, [WHY, HOW])[0] == []


@pytest.mark.slow
@given(FILE, st.sampled_from(["x.tsv", "x.jsonl"]), st.sampled_from(list(TRACKS.values())))
def test_any_bytes_are_repaired_or_kept(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str, track: Track
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    (folder / name).write_bytes(data)
    _, left = fix(folder / name, folder / f"out-{name}", track, [WHY, HOW])
    assert left.violations == validate(folder / f"out-{name}", track, [WHY, HOW])
    assert fix(folder / f"out-{name}", folder / f"again-{name}", track, [WHY, HOW])[0] == []
    assert (folder / f"again-{name}").read_bytes() == (folder / f"out-{name}").read_bytes()


@pytest.mark.slow
def test_the_command_reports_repairs_and_judges_the_result(tmp_path: Path) -> None:
    (tmp_path / "topics.jsonl").write_text('{"id": 1, "title": "Why?"}\n')
    (tmp_path / "x.jsonl").write_text(make_line(references=[A, B, A]) + "\n")
    arguments = ["validate", "x.jsonl", "--topics", "topics.jsonl", "--fix"]
    shown = keystone(*arguments, "out.jsonl.gz", cwd=tmp_path)
    assert (shown.returncode, shown.stdout.splitlines()) == (
        0,
        [
            "x.jsonl:1: repaired: references: 1 repeated reference merged",
            "out.jsonl.gz: 1 of 1 topic, 1 sentence, 0 without citation",
            "out.jsonl.gz: valid for rag25: 0 errors, 0 warnings",
        ],
    )
    assert json.loads(gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()))["references"] == [A, B]
    before = (tmp_path / "x.jsonl").read_bytes()
    shown = keystone(*arguments, "./x.jsonl", cwd=tmp_path)
    assert (shown.returncode, (tmp_path / "x.jsonl").read_bytes()) == (1, before)
    assert "error: --fix x.jsonl: is x.jsonl, which the command reads" in shown.stderr


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        fix(tmp_path / "x", tmp_path / "out", TRACKS["rag25"], [Topic("1", "Why?")])
    assert list(tmp_path.iterdir()) == []
