"""REST servers as backends: Pyserini's own servers, whole runs over them, and faults of servers."""

import json
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.attached import rest_server as rest
from keystone.indexing.attached.attach import AttachSettings, limit_rate
from keystone.indexing.attached.rest_server import Server, address, candidates_of, form_of
from keystone.indexing.attached.rest_store import FOUND, RestStore, adopt_server, document_of_payload
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.index import Index
from keystone.indexing.io import api_keys, retry
from keystone.indexing.io.api_keys import OTHER_NAMES
from keystone.indexing.types import MINILM, Document, Segment, Span
from keystone.retrieval.backends import open_sparse, open_store
from keystone.retrieval.types import BM25, Bm25, Query, Rankings
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.lucene_indexes import build_anserini_index, find_older_jars
from tests.support.indexes.searches import search_all, search_bm25
from tests.support.indexes.small_corpus import CORPUS, write_topics
from tests.support.runs.command_line import keystone, keystone_here
from tests.support.servers.keystone_server import keystone_server
from tests.support.servers.ports import free_port
from tests.support.servers.rest import Fault, Handler, Scripted, anserini_server, pyserini_server, scripted_server

pytestmark = pytest.mark.slow

RECORDS = [{"id": name, "contents": f"{title}\n{text}"} for name, (title, text) in CORPUS.items()]
TITLED = [{"docid": n, "url": "u", "title": t, "headings": "", "body": x} for n, (t, x) in CORPUS.items()]
TEXTS = ["honey bees in the kitchen", "ash of a volcano", "insects", "zzyzx", " "]
NAMES = [str(number) for number in range(len(TEXTS))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_indexes(tmp_path_factory.mktemp("rest"))


def build_indexes(folder: Path, jars: Path | None = None) -> Path:
    """A folder of Lucene indexes of the small corpus: `bees`, and `titled` in MS MARCO's form."""
    build_anserini_index(folder, "bees", [RECORDS[::-2], RECORDS[-2::-2]], "-storeRaw", jars=jars)
    build_anserini_index(folder, "titled", [TITLED], "-storeRaw", collection="MsMarcoV2DocCollection", jars=jars)
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with anserini_server(folder) as found:
        yield found


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """A local pooled index of the same corpus."""
    made = tmp_path_factory.mktemp("local")
    (made / "c.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return build_index(made / "c.jsonl", made / "index", BuildSettings(faiss=None))[0]


@pytest.fixture
def remote(url: str, tmp_path: Path) -> Index:
    return adopt_server(Path(f"rest:{url}/bees"), tmp_path / "remote", AttachSettings(embedding=MINILM))[0]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(retry, "LONGEST_REST_S", 0.02)
    monkeypatch.setattr(rest, "REPLY_TIMEOUT_S", 5.0)


def hits(index: Index, depth: int = 5, texts: list[str] = TEXTS, bm25: Bm25 = BM25) -> list[list[tuple[str, float]]]:
    store = open_store(index)
    found = open_sparse(index, store, bm25).search(NAMES[: len(texts)], texts, depth)
    return named(store.ids, found)


def named(ids: Any, found: Rankings) -> list[list[tuple[str, float]]]:
    return [list(zip(ids(found.of(i)), found.scores_of(i).tolist(), strict=True)) for i in range(len(found))]


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        ("rest:http://h:8081/climbmix-400b", ("http://h:8081", "climbmix-400b")),
        ("rest:https://h/pyserini/v1/a.b_c", ("https://h/pyserini", "a.b_c")),
        ("rest:http://h:8081/a/", ("http://h:8081", "a")),
        ("rest:http://[::1]:8081/a", ("http://[::1]:8081", "a")),
        ("corpus.jsonl", None),
        ("rest.jsonl", None),
    ],
)
def test_an_address_is_a_url_and_the_name_of_an_index(corpus: str, expected: tuple[str, str] | None) -> None:
    assert address(Path(corpus)) == expected


@pytest.mark.parametrize("corpus", ["h:8081/a", "ftp://h/a", "http://h:8081", "http://u:p@h/a", "http://h/a?b=c", ""])
def test_a_text_that_is_no_server_address_is_refused(corpus: str) -> None:
    with pytest.raises(UserError, match="expected rest:http://HOST:PORT/INDEX"):
        address(Path(f"rest:{corpus}"))


OWN = (Segment("d#1_2", Span("d#1_2", 0, 4)),)


@pytest.mark.parametrize(
    ("payload", "name", "expected"),
    [
        pytest.param("Plain words.", "d", Document("d", "Plain words."), id="a string"),
        pytest.param({"text": "T"}, "d", Document("d", "T"), id="an object"),
        pytest.param('{"id": "x", "contents": "C"}', "d", Document("d", "C"), id="raw JSON"),
        pytest.param(' {\n "contents": "C", "title": "N" }', "d", Document("d", "C", "N"), id="raw JSON, indented"),
        pytest.param({"body": "B", "title": "N", "url": "u", "headings": "H"}, "d", Document("d", "B", "N", "u", "H"),
                     id="MS MARCO"),
        pytest.param({"segment": "Text", "start_char": "4"}, "d#1_2", Document("d#1_2", "Text", segments=OWN),
                     id="a segment"),
        pytest.param("Text", "d#1_2", Document("d#1_2", "Text", segments=OWN), id="the text of a segment"),
        pytest.param("{a: 1}", "d", Document("d", "{a: 1}"), id="a string that looks like JSON"),
        pytest.param("2024", "d", Document("d", "2024"), id="a string of digits"),
        pytest.param("", "d", Document("d", ""), id="nothing"),
        pytest.param(None, "d", "found NoneType", id="null"),
        pytest.param([1], "d", "found list", id="a list"),
        pytest.param({"title": "N"}, "d", "expected one of the keys text, contents, body", id="no text"),
        pytest.param('{"contents": 7}', "d", "expected text, found int", id="raw JSON with a number for text"),
    ],
)  # fmt: skip
def test_payloads_of_every_form(payload: Any, name: str, expected: Document | str) -> None:
    if isinstance(expected, Document):
        assert document_of_payload(payload, name, "here") == expected
    else:
        with pytest.raises(BadRecord, match=expected):
            document_of_payload(payload, name, "here")


@given(
    st.one_of(
        st.none(),
        st.integers(),
        st.text(),
        st.recursive(
            st.none() | st.text() | st.integers(),
            lambda inner: (
                st.lists(inner) | st.dictionaries(st.sampled_from(["candidates", "docid", "score", "doc"]), inner)
            ),
        ),
    )
)
def test_any_reply_is_either_read_or_refused(reply: Any) -> None:  # fmt: skip
    try:
        found = candidates_of(reply)
    except ValueError:
        return
    assert [(hit.id, hit.score) for hit in found] == [(c["docid"], c["score"]) for c in reply["candidates"]]


def test_the_ranking_is_the_local_one(remote: Index, local: Index) -> None:
    """The server rounds scores to four places."""
    for depth in (1, 2, 5, 100):
        ours, theirs = hits(local, depth), hits(remote, depth)
        assert [[name for name, _ in own] for own in theirs] == [[name for name, _ in own] for own in ours]
        for a, b in zip(ours, theirs, strict=True):
            assert [score for _, score in b] == pytest.approx([score for _, score in a], abs=2e-4)
    twins = [[name for name, _ in hits(remote, depth, ["twins in the kitchen"])[0]] for depth in (1, 2)]
    assert twins == [["twin-a"], ["twin-a", "twin-b"]]


def test_rows_are_ranks_of_found_documents_which_are_kept(remote: Index, local: Index) -> None:
    store = open_store(remote)
    assert (len(store), remote.documents, remote.pooled, list(store)) == (0, None, True, [])
    first = open_sparse(remote, store).search(["1"], ["volcano"], 3)
    before = store.ids(first.of(0))
    assert store.ids(range(len(store))) == sorted(before)
    other = open_store(remote)
    open_sparse(remote, other).search(["1"], ["honey"], 3)
    assert store.ids(first.of(0)) == before, "the rows of a store do not change by what another one finds"
    assert len(other) > len(store)
    own = {document.id: document for document in open_store(local)}
    assert [own[document.id] for document in other] == list(other)
    ids = [document.id for document in other]
    rows = other.rows(ids).tolist()
    assert (ids, rows) == (sorted(ids), list(range(rows[0], rows[0] + len(other))))
    assert other.rows(["no such", *before]).tolist() == [-1, *(rows[ids.index(name)] for name in before)]
    with pytest.raises(UserError, match="lacks documents that the run has found"):
        other.get([-1])


def test_both_searches_of_a_pooled_index_are_the_local_ones(remote: Index, local: Index) -> None:
    queries = [Query("1", name, text, text, text) for name, text in zip(NAMES[:4], TEXTS, strict=False)]
    found = []
    for index in (local, remote):
        store = open_store(index)
        both = search_all(index, store, queries, depth=4)
        found.append({system: named(store.ids, rankings) for system, rankings in both.items()})
    assert found[0]["dense"] == found[1]["dense"]


def test_a_statistic_that_no_server_gives_is_an_error_that_names_the_setting(remote: Index) -> None:
    store = open_store(remote)
    searcher = open_sparse(remote, store)
    for refused in (searcher.stem_frequencies, searcher.document_frequencies):
        with pytest.raises(UserError, match=r"retrieval.feedback: none, queries.topic: lead and queries.variants: 0"):
            refused(["bees"])
    with pytest.raises(UserError, match=r"takes no weighted words: set retrieval\.feedback: none"):
        searcher.search(["1"], [{"bee": 1.0}], 3)
    assert searcher.stems("The bees danced") == ["bee", "danc"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        pytest.param("http://127.0.0.1:{port}/bees", "asked 8 times: Connection refused", id="no server"),
    ],
)
def test_adopting_an_index_that_the_server_lacks_is_an_error(
    url: str, tmp_path: Path, address: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        adopt_server(Path("rest:" + address.format(url=url, port=free_port())), tmp_path / "index")
    assert not list(tmp_path.iterdir())


def test_an_index_is_adopted_once(remote: Index, url: str) -> None:
    assert adopt_server(Path(f"rest:{url}/bees"), remote.folder, AttachSettings(embedding=MINILM)) == (remote, False)
    with pytest.raises(UserError, match="holds an index of another corpus"):
        adopt_server(Path(f"rest:{url}/titled"), remote.folder)


@pytest.mark.nightly
@pytest.mark.slow
def test_pyserinis_older_server_is_searched_and_its_documents_are_fetched_one_by_one(
    local: Index, tmp_path: Path
) -> None:
    """The server sends texts without titles, and no MS MARCO documents, so Keystone fetches those one by one."""
    (tmp_path / "indexes").mkdir()
    with pyserini_server(build_indexes(tmp_path / "indexes", find_older_jars())) as found:
        plain = adopt_server(Path(f"rest:{found}/bees"), tmp_path / "plain")[0]
        assert plain.at["api"] == "v1/indexes"
        assert [[n for n, _ in own] for own in hits(plain)] == [[n for n, _ in own] for own in hits(local)]
        titled = adopt_server(Path(f"rest:{found}/titled"), tmp_path / "titled")[0]
        hits(titled)
        with pytest.raises(UserError, match="HTTP 404: Index nothing not currently supported"):
            adopt_server(Path(f"rest:{found}/nothing"), tmp_path / "nothing")
    known = list(open_store(titled))
    assert known
    assert [(d.title, d.text) for d in known] == [CORPUS[d.id] for d in known]


RUN = """
run_id: small
index: {index}
topics: {folder}/topics.jsonl
out: {folder}/{out}
retrieval: {{depth: 8}}
fusion: {{depth: 6}}
answer: {{documents: 5, words: 60}}
"""
SETTINGS = ["retrieval.depth=8", "fusion.depth=6", "answer.documents=5", "answer.words=60"]


@pytest.mark.slow
def test_runs_and_answers_over_a_server_are_those_of_a_local_index(url: str, local: Index, tmp_path: Path) -> None:
    write_topics(tmp_path / "topics.jsonl")
    shown = keystone("index", f"rest:{url}/bees", "--out", tmp_path / "remote")
    assert (shown.returncode, shown.stdout) == (0, f"{tmp_path / 'remote'}: documents of a server\n")
    for name, index in (("there", tmp_path / "remote"), ("here", local.folder)):
        (tmp_path / f"{name}.yaml").write_text(RUN.format(index=index, folder=tmp_path, out=name))
        shown = keystone("run", tmp_path / f"{name}.yaml", "-q")
        assert (shown.returncode, shown.stderr) == (0, "")
        answers = tmp_path / f"{name}.jsonl"
        changes = [part for setting in SETTINGS for part in ("--set", setting)]
        arguments: list[str | Path] = [
            "--topics",
            tmp_path / "topics.jsonl",
            "--index",
            index,
            "--out",
            answers,
            "-q",
            *changes,
        ]
        shown = keystone("answer", *arguments)
        assert (shown.returncode, shown.stderr) == (0, "")
    assert sorted((tmp_path / "there.jsonl").open()) == sorted((tmp_path / "here.jsonl").open())
    for name in ("queries.jsonl", "dense.trec", "narrative.trec", "evidence.jsonl", "answers.jsonl",
                 "r_output_trec_rag_2025.tsv", "rag_output_trec_rag_2025.jsonl"):  # fmt: skip
        assert (tmp_path / "there/small" / name).read_bytes() == (tmp_path / "here/small" / name).read_bytes(), name
    for name in ("bm25.trec", "hybrid.trec"):
        here, there = (read_run(tmp_path / place / "small" / name).list_hits() for place in ("here", "there"))
        assert {t: [d for d, _ in own] for t, own in here.items()} == {
            t: [d for d, _ in own] for t, own in there.items()
        }
        assert {t: dict(own) for t, own in here.items()} == {
            t: pytest.approx(dict(own), abs=1e-4) for t, own in there.items()
        }, "the server rounds scores to four decimals"
    assert len(json.loads((tmp_path / "there.jsonl").read_text().splitlines()[0])["answer"]) > 0
    words = "a REST server does not tell how many documents hold a word"
    for setting, message in (
        ("retrieval.feedback=rm3", "retrieval.feedback: rm3: .* ignores this: its scores stay the same"),
        ("queries.variants=3", words),
        ("queries.topic=phrase", words),
    ):
        shown = keystone("run", tmp_path / "there.yaml", "-q", "--set", setting, "--set", "run_id=other")
        assert (shown.returncode, shown.stderr.count("\n")) == (1, 1)
        assert re.search(message, shown.stderr)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_run_continues_without_the_server_after_its_searches(folder: Path, tmp_path: Path) -> None:
    """The run needs no Java. If the found documents are gone, the error says what to do."""
    write_topics(tmp_path / "topics.jsonl")
    with anserini_server(folder) as passing:
        assert keystone("index", f"rest:{passing}/bees", "--out", tmp_path / "i", "-q").returncode == 0
        (tmp_path / "r.yaml").write_text(RUN.format(index=tmp_path / "i", folder=tmp_path, out="out"))
        shown = keystone("run", tmp_path / "r.yaml", "-q", "--set", "track=none", JAVA_HOME="/nowhere")
        assert (shown.returncode, shown.stderr) == (0, "")
    shown = keystone("run", tmp_path / "r.yaml", "-q")
    assert (shown.returncode, shown.stderr) == (0, "")
    (tmp_path / "i" / FOUND).unlink()
    shown = keystone("run", tmp_path / "r.yaml", "-q", "--set", "fusion.systems=rrf")
    assert (shown.returncode, shown.stderr.count("\n")) == (1, 1)
    assert "found.sqlite: lacks documents that the run has found: run it again with another out" in shown.stderr


PAYLOADS = {name: {"text": f"{name} text"} for name in "cabde"}


def status(code: int, body: bytes = b'{"error": "too busy"}', **headers: str) -> Fault:
    def fault(handler: Handler) -> bool:
        handler.send(body, code, {name.replace("_", "-"): value for name, value in headers.items()})
        return True

    return fault


def cut(handler: Handler) -> bool:
    body = json.dumps(handler.found()).encode()
    handler.send(body[: len(body) // 2], length=len(body))
    handler.close_connection = True
    return True


def hung_up(handler: Handler) -> bool:
    handler.close_connection = True
    handler.connection.close()
    return True


def slow(_handler: Handler) -> bool:
    time.sleep(7)
    return True


def wrong(value: Any) -> Fault:
    def fault(handler: Handler) -> bool:
        handler.reply(value)
        return True

    return fault


TORN = b'{"candidates": [{"docid": "a", "sc'
FAULTS = {
    "429": status(429),
    "429 with a pause": status(429, Retry_After="0.01"),
    "503": status(503, b"<html>Service Unavailable</html>"),
    "500": status(500),
    "half a reply": cut,
    "half a reply as if it were whole": status(200, TORN),
    "no reply": hung_up,
    "a late reply": slow,
    "no object": wrong([1]),
    "no candidates": wrong({"hits": []}),
    "no id": wrong({"candidates": [{"score": 1.0}]}),
    "a score that is a text": wrong({"candidates": [{"docid": "a", "score": "1"}]}),
    "scores that ascend": wrong({"candidates": [{"docid": "a", "score": 1}, {"docid": "b", "score": 2}]}),
    "a document twice": wrong({"candidates": [{"docid": "a", "score": 1}, {"docid": "a", "score": 1}]}),
}


def over(server: Scripted, tmp_path: Path) -> tuple[Index, RestStore]:
    index = adopt_server(Path(f"rest:{server.url}/x"), tmp_path / "index")[0]
    server.requests.clear()
    store = open_store(index)
    assert isinstance(store, RestStore)
    return index, store


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_temporary_fault_changes_no_ranking(fault: Fault, tmp_path: Path) -> None:
    with scripted_server(payloads=PAYLOADS) as server:
        index, store = over(server, tmp_path)
        server.faults += [fault] * 2
        found = open_sparse(index, store).search(["1", "2"], ["x", "y"], 3)
        assert [store.ids(found.of(i)) for i in (0, 1)] == [["c", "a", "b"]] * 2
        assert [d.text for d in store] == [f"{name} text" for name in "abcde"]
        assert len(server.requests) == 4


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_waited_for(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "LONGEST_REST_S", 60.0)
    with scripted_server(payloads=PAYLOADS) as server:
        index, store = over(server, tmp_path)
        server.faults += [status(code, Retry_After="1")]
        began = time.monotonic()
        assert store.ids(open_sparse(index, store).search(["1"], ["x"], 3).of(0)) == ["c", "a", "b"]
        assert 1 <= time.monotonic() - began < 30
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(status(429), "asked 8 times: HTTP 429: too busy", id="busy for ever"),
        pytest.param(status(503, b""), "asked 8 times: HTTP 503: Service Unavailable", id="without a word"),
        pytest.param(status(200, TORN), "asked 8 times: a wrong reply: unexpected end of data", id="torn for ever"),
        pytest.param(cut, "asked 8 times: IncompleteRead", id="cut for ever"),
        pytest.param(wrong([1]), "asked 8 times: a wrong reply: found no list of candidates", id="wrong for ever"),
        pytest.param(status(401), f"HTTP 401: .*key in the environment: {rest.KEY}", id="no access"),
        pytest.param(status(403), "HTTP 403: .*--rest-key-env NAME, also for http$", id="a key without rights"),
        pytest.param(status(414, b"<h1>URI Too Long</h1>"), "HTTP 414: URI Too Long: a query of 1 ch", id="too long"),
        pytest.param(
            status(400, b'{"error": "hits must be <= 2"}'),
            r"hits must be <= 2: 3 hits were asked for: lower retrieval\.depth",
            id="too deep",
        ),
    ],
)
def test_a_lasting_fault_is_one_error(fault: Fault, message: str, tmp_path: Path) -> None:
    with scripted_server(payloads=PAYLOADS) as server:
        index, store = over(server, tmp_path)
        server.always = fault
        with pytest.raises(UserError, match=message) as raised:
            open_sparse(index, store).search(["1"], ["x"], 3)
        assert server.url in str(raised.value)
        assert len(server.requests) <= retry.MOST_TRIES + 1


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        pytest.param({"docid": 5, "score": 1}, "found the docid 5, expected", id="an id that is a number"),
        pytest.param({"docid": "a b", "score": 1}, "found the docid a b, expected", id="an id with a space"),
        pytest.param({"docid": "\x1b[2J", "score": 1}, r"found the docid \?\[2J, expected", id="control bytes"),
        pytest.param({"docid": "x" * 10**6, "score": 1}, "found the docid xxx.*…", id="an id of a million letters"),
        pytest.param({"docid": "a", "score": None}, "found the score", id="no score"),
        pytest.param({"docid": "a", "score": "1"}, "found the score 1, expected", id="a score that is a text"),
        pytest.param({"docid": "a", "score": True}, "found the score true, expected", id="a truth value"),
        pytest.param({"docid": "a", "score": 1e39}, r"found the score 1e\+39, expected", id="beyond single precision"),
        pytest.param({"docid": "a", "score": [[1]]}, "found the score", id="a score that is a list"),
    ],
)
def test_an_impossible_candidate_is_an_error(candidate: Any, words: str, tmp_path: Path) -> None:
    with scripted_server(payloads=PAYLOADS) as server:
        index, store = over(server, tmp_path)
        server.always = wrong({"candidates": [candidate]})
        with pytest.raises(UserError, match=f"{server.url}: .*{words}") as raised:
            open_sparse(index, store).search(["1"], ["x"], 3)
        assert str(raised.value).isprintable()
        assert len(store) == 0


@pytest.mark.parametrize("most", [3, 10, 11, 12])
def test_a_limit_of_depth_is_respected_up_to_the_depth_itself(most: int, tmp_path: Path) -> None:
    def limited(handler: Handler) -> bool:
        return handler.hits() > most and status(400, b'{"error": "at most so many hits"}')(handler)

    with scripted_server(payloads={f"d{n:02d}": "x" for n in range(60)}, always=limited) as server:
        index, store = over(server, tmp_path)
        found = open_sparse(index, store).search(["1", "2"], ["x", "y"], 3)
        assert [store.ids(found.of(i)) for i in (0, 1)] == [["d00", "d01", "d02"]] * 2


def test_ties_are_by_id_also_at_the_cut(tmp_path: Path) -> None:
    def tied(handler: Handler) -> bool:
        names = [f"d{n:02d}" for n in range(40, 0, -1)][: handler.hits()]
        handler.reply({"candidates": [{"docid": name, "score": 0.5, "doc": "x"} for name in names]})
        return True

    with scripted_server(payloads={}, always=tied) as server:
        index, store = over(server, tmp_path)
        found = open_sparse(index, store).search(["1"], ["x"], 3)
        assert store.ids(found.of(0)) == ["d01", "d02", "d03"]


def test_a_row_never_changes_its_document(tmp_path: Path) -> None:
    """Each search finds documents whose ids lie between those of earlier searches."""
    batches = [["m", "c"], ["d", "a", "m"], ["m", "c"], ["z", "b", "d"]]

    def batch(handler: Handler) -> bool:
        asked = handler.path.split("query=")[1][0]
        names = batches[int(asked)] if asked.isdigit() else []
        handler.reply({"candidates": [{"docid": name, "score": 0.5, "doc": f"of {name}"} for name in names]})
        return True

    with scripted_server(payloads={}, always=batch) as server:
        index, store = over(server, tmp_path)
        given: dict[int, str] = {}
        for number, names in enumerate(batches):
            found = open_sparse(index, store).search(["1"], [str(number)], 5)
            assert store.ids(found.of(0)) == sorted(names), "ties are by id"
            assert found.of(0).tolist() == store.rows(sorted(names)).tolist()
            given |= dict(zip(found.of(0).tolist(), sorted(names), strict=True))
            assert store.ids(list(given)) == list(given.values())
            assert [document.text for document in store.get(list(given))] == [f"of {name}" for name in given.values()]
            known = [document.id for document in store]
            assert known == sorted(set(given.values()))
            rows = store.rows(known).tolist()
            assert rows == list(range(rows[0], rows[0] + len(store)))
        assert len(given) == 9, "the third search found nothing new, so it began no new rows"
        assert store.rows(["a", "no such"]).tolist()[1] == -1
        with pytest.raises(IndexError, match="is not in the store"):
            store.ids([max(given) + 1])


def test_documents_missing_from_a_reply_are_requested_once(tmp_path: Path) -> None:
    payloads = {"a": None, "b": "", "c": {"title": "no text"}, "d": "Text.", "e": {"title": "N"}, "x#0_0": None}
    documents = {name: {"body": f"body of {name}"} for name in ("a", "b", "c", "e", "x%230_0")}
    with scripted_server(payloads=payloads, documents=documents) as server:
        index, store = over(server, tmp_path)
        for _ in range(2):
            found = open_sparse(index, store).search(["1"], ["x"], 6)
            assert [d.text for d in store.get(sorted(found.of(0).tolist()))] == [
                "body of a", "body of b", "body of c", "Text.", "body of e", "body of x%230_0"
            ]  # fmt: skip
        assert sum("/doc/" in path for path in server.requests) == 5
        assert next(iter(open_store(index))).text == "body of a"


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        pytest.param({"a": None}, "document a: expected a document, found NoneType", id="nothing"),
        pytest.param({"a": {"title": "T"}}, "expected one of the keys text, contents, body", id="no text"),
    ],
)
def test_a_document_without_text_is_an_error(documents: dict[str, Any], message: str, tmp_path: Path) -> None:
    with scripted_server(payloads={"a": None}, documents=documents) as server:
        index, store = over(server, tmp_path)
        with pytest.raises(UserError, match=message):
            open_sparse(index, store).search(["1"], ["x"], 3)


def test_a_server_gets_no_more_requests_at_once_than_its_limit() -> None:
    def unhurried(handler: Handler) -> bool:
        time.sleep(0.02)
        if handler.state.at_once > 4:
            return status(429)(handler)
        return False

    with scripted_server(payloads=PAYLOADS, always=unhurried) as server:
        found = Server(server.url, "x", "v1").search(["x"] * 100, 3)
        assert {tuple(hit.id for hit in own) for own in found} == {("c", "a", "b")}
        assert 4 <= server.most_at_once <= rest.MOST_REQUESTS
        assert len(server.requests) < 180, "with 8 requests always on their way, half of all would be refused"


def test_a_key_is_sent_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rest.KEY, "secret-key")
    monkeypatch.setattr(api_keys, "goes_by_https", lambda _: True)
    with scripted_server(payloads=PAYLOADS) as server:
        index, store = over(server, tmp_path)
        assert server.keys == {"Bearer secret-key"}
        server.always = status(401, b"Bearer secret-key is unknown")
        with pytest.raises(UserError) as raised:
            open_sparse(index, store).search(["1"], ["x"], 3)
    assert "secret-key" not in str(raised.value)
    assert not any(b"secret-key" in path.read_bytes() for path in index.folder.iterdir())


def test_a_key_may_have_the_names_of_other_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [rest.KEY, *OTHER_NAMES[rest.KEY]]
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(api_keys, "goes_by_https", lambda _: True)
    with scripted_server(payloads=PAYLOADS) as server:
        for name in reversed(names):
            monkeypatch.setenv(name, f"key-of-{name}")
            Server(server.url, "x", "v1").search(["x"], 1)
        assert server.keys == {f"Bearer key-of-{name}" for name in names}


@pytest.mark.parametrize("name", [rest.KEY, *OTHER_NAMES[rest.KEY]])
def test_a_key_stays_here_if_others_could_read_it_on_its_way(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for other in (rest.KEY, *OTHER_NAMES[rest.KEY]):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "secret-key")
    with scripted_server(payloads=PAYLOADS) as server:
        assert Server(server.url, "x", "v1").search(["x"], 1)
        assert server.keys == {None}
        assert f"{server.url}: is sent no key: {name} is not named for it and goes by https alone" in caplog.text
        assert "secret-key" not in caplog.text


def test_the_key_of_a_named_variable_is_sent_by_http_and_the_index_keeps_its_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rest.KEY, "another-key")
    with scripted_server(payloads=PAYLOADS) as server:
        corpus, refusal = Path(f"rest:{server.url}/x"), f"expected the server's key in the environment: {rest.KEY}"
        server.always = status(401, b"a token is mandatory")
        with pytest.raises(UserError, match=f"HTTP 401.*{refusal} by https, or --rest-key-env NAME"):
            adopt_server(corpus, tmp_path / "index")
        server.always = None
        server.keys.clear()
        for name in ("FIRST_TOKEN", "SECOND_TOKEN"):
            with pytest.raises(UserError, match=f"{name}: holds no key for {server.url}"):
                adopt_server(corpus, tmp_path / "index", AttachSettings(key_env=name))
            monkeypatch.setenv(name, f"key-of-{name}")
            index = adopt_server(corpus, tmp_path / "index", AttachSettings(key_env=name))[0]
            open_sparse(index, open_store(index)).search(["1"], ["x"], 3)
            assert server.keys == {f"Bearer key-of-{name}"}
            server.keys.clear()
            assert name in (index.folder / "index.json").read_text()
            assert not any(b"key-of" in path.read_bytes() for path in index.folder.iterdir())


def test_a_key_that_the_server_stops_taking_is_named_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_TOKEN", "right")
    with scripted_server(payloads=PAYLOADS) as server:
        index = adopt_server(Path(f"rest:{server.url}/x"), tmp_path / "index", AttachSettings(key_env="TEAM_TOKEN"))[0]
        server.always = status(403, b"this token has expired")
        with pytest.raises(UserError, match=r"HTTP 403: this token has expired: .* in the environment: TEAM_TOKEN$"):
            open_sparse(index, open_store(index)).search(["1"], ["x"], 3)


def test_each_search_is_paid_once_and_repeated_without_the_server(tmp_path: Path) -> None:
    narratives = [f"narrative {number}" for number in range(119)]
    names = [str(number) for number in range(119)]
    with scripted_server(payloads=PAYLOADS) as server:
        index, store = over(server, tmp_path)
        first = open_sparse(index, store).search(names, narratives, 3)
        ranked = [(store.ids(first.of(place)), list(first.scores_of(place))) for place in range(119)]
        assert len(server.requests) == len(set(server.requests)) == 119
    again = open_store(index)
    found = open_sparse(index, again).search(names, narratives, 3)
    assert [(again.ids(found.of(place)), list(found.scores_of(place))) for place in range(119)] == ranked


def test_a_search_of_another_depth_or_whose_documents_are_lost_is_asked_for_again(tmp_path: Path) -> None:
    with scripted_server(payloads=PAYLOADS) as server:
        index, _ = over(server, tmp_path)
        for depth, lost, requests in ((3, False, 1), (3, False, 1), (4, False, 2), (3, True, 3), (3, False, 3)):
            if lost:
                (index.folder / FOUND).unlink()
            open_sparse(index, open_store(index)).search(["1"], ["x"], depth)
            assert len(server.requests) == requests


def test_a_server_that_takes_k1_and_b_ranks_by_them(local: Index, tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    with keystone_server(local.folder, tmp_path / "served") as served:
        remote = adopt_server(Path(f"rest:{served.url}/{local.folder.name}"), tmp_path / "remote")[0]
        for bm25 in (Bm25(), Bm25(2.0, 0.75), Bm25(0.0, 0.4)):
            assert hits(remote, bm25=bm25) == hits(local, bm25=bm25)


@pytest.mark.parametrize("feedback", ["rm3", "rocchio"])
def test_a_server_that_makes_feedback_ranks_by_it(feedback: Any, local: Index, tmp_path: Path) -> None:
    """Also through a second server, whose own index is the first one."""
    queries = [Query("1", name, text, text, text) for name, text in zip(NAMES[:4], TEXTS, strict=False)]
    indexes = [local]
    with ExitStack() as servers:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            served = servers.enter_context(keystone_server(indexes[-1].folder, tmp_path / name))
            corpus = Path(f"rest:{served.url}/{indexes[-1].folder.name}")
            indexes.append(adopt_server(corpus, tmp_path / name / "remote")[0])
        found = []
        for index in indexes:
            store = open_store(index)
            rankings = search_bm25(index, store, queries, depth=4, k1=1.2, b=0.75, feedback=feedback)
            found.append(named(store.ids, rankings))
    assert found[0] == found[1] == found[2]


def test_whether_a_server_takes_k1_and_b_is_asked_once(tmp_path: Path) -> None:
    def score(handler: Handler) -> bool:
        asked = dict(parse_qsl(urlsplit(handler.path).query))
        found = [{"docid": "a", "score": float(asked.get("k1", 0.9)), "doc": "Bees"}]
        handler.reply({"candidates": found if asked["query"] != "nothing" else []})
        return True

    with scripted_server(payloads=PAYLOADS) as server:
        index, _ = over(server, tmp_path)
        server.always = score
        server.requests.clear()
        for texts in (["nothing", "bees"], ["wasps", "nothing"]):
            assert hits(index, 3, texts, Bm25(1.5, 0.5))[texts.index("nothing") ^ 1] == [("a", 1.5)]
    asked = [dict(parse_qsl(urlsplit(path).query)) for path in server.requests]
    assert [(one["query"], one["k1"], one["b"]) for one in asked[:4]] == [
        (text, *setting) for text in ("nothing", "bees") for setting in (("0.9", "0.4"), ("3.0", "1.0"))
    ]
    assert sorted((one["query"], one["k1"]) for one in asked[4:]) == [
        ("bees", "1.5"), ("nothing", "1.5"), ("wasps", "1.5")
    ]  # fmt: skip


def refuse_k1(handler: Handler) -> bool:
    handler.reply({"error": "unknown parameter k1"}, 400)
    return True


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(lambda _: False, r"{url} ignores this: its scores stay the same", id="ignores"),
        pytest.param(refuse_k1, r"{url}.* HTTP 400: unknown parameter k1", id="refuses"),
    ],
)
def test_a_server_that_does_not_take_k1_and_b_is_named(fault: Fault, message: str, tmp_path: Path) -> None:
    with scripted_server(payloads=PAYLOADS) as server:
        index, _ = over(server, tmp_path)
        server.always = fault
        expected = r"; expected retrieval\.k1: 0\.9 and retrieval\.b: 0\.4, or a server that takes them$"
        with pytest.raises(
            UserError, match=r"^retrieval\.k1: 1\.2, retrieval\.b: 0\.4: " + message.format(url=server.url) + expected
        ):
            hits(index, 3, ["bees"], Bm25(k1=1.2))


def test_a_server_gets_no_more_requests_a_second_than_the_index_says(tmp_path: Path) -> None:
    times: list[float] = []

    def note(_handler: Handler) -> bool:
        times.append(time.monotonic())
        return False

    with scripted_server(payloads=PAYLOADS) as server:
        corpus, texts = Path(f"rest:{server.url}/x"), [f"query {number}" for number in range(11)]
        adopt_server(corpus, tmp_path / "index")
        index, is_new = adopt_server(corpus, tmp_path / "index", AttachSettings(max_rate=20))
        assert not is_new
        server.always = note
        open_sparse(index, open_store(index)).search(texts, texts, 3)
    assert len(times) == 11
    assert max(times) - min(times) > 0.4, "11 requests at 20 a second take 0.5 s"


def test_a_run_may_set_the_rate_itself(tmp_path: Path) -> None:
    with scripted_server(payloads=PAYLOADS) as server:
        index, _ = over(server, tmp_path)
    assert limit_rate(index, 0) == index
    limited = limit_rate(index, 2.5)
    assert (limited.at["max_rate"], limited.key) == ("2.5", index.key)
    with pytest.raises(
        UserError, match=r"^retrieval\.max_rate: found 2 for .*, expected an index on a REST server, or 0$"
    ):
        limit_rate(replace(index, at={}), 2)


def test_only_a_rest_server_takes_the_name_of_a_key(tmp_path: Path) -> None:
    shown = keystone_here("index", tmp_path, "--rest-key-env", "K", "--out", tmp_path.with_name("index"))
    assert (shown.returncode, "--rest-key-env: found with" in shown.stderr) == (1, True)


def test_the_newer_form_of_the_server_is_found_below_a_prefix() -> None:
    with scripted_server(payloads=PAYLOADS) as server:
        assert form_of(f"{server.url}/prefix", "a b") == ("v1", {})
        assert server.requests == ["/prefix/v1/a%20b/search?query=document&hits=1&parse=false"]


def test_a_damaged_registry_is_one_error(remote: Index) -> None:
    hits(remote)
    (remote.folder / FOUND).write_bytes(b"not what it was" * 99)
    with pytest.raises(UserError, match=r"found\.sqlite: cannot be used: file is not a database"):
        open_store(remote)
    (remote.folder / FOUND).unlink()
    (remote.folder / FOUND).mkdir()
    with pytest.raises(UserError, match=r"found\.sqlite: cannot be used: unable to open"):
        open_store(remote)
    shutil.rmtree(remote.folder)
    with pytest.raises(UserError, match="was replaced or removed while it was in use"):
        open_store(remote)


def test_stores_may_keep_documents_at_the_same_time(remote: Index) -> None:
    one, two = open_store(remote), open_store(remote)
    assert isinstance(one, RestStore)
    assert isinstance(two, RestStore)
    one.keep([("a", "first"), ("b", "x")])
    two.keep([("a", "second"), ("c", "x")])
    one.number_documents()
    assert [(d.id, d.text) for d in one] == [("a", "first"), ("b", "x"), ("c", "x")]
    with sqlite3.connect(remote.folder / FOUND) as registry:
        assert registry.execute("SELECT count(*) FROM documents").fetchone() == (3,)
