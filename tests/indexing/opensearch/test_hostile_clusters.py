"""A cluster with impossible answers in OpenSearch's form: an error names its URL, and no ranking is wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from keystone.indexing.errors import UserError
from keystone.indexing.index import FORMAT, Index
from keystone.indexing.opensearch import store as opensearch_store
from keystone.indexing.opensearch.build import adopt_loaded
from keystone.indexing.opensearch.cluster import CA, KEY, PASSWORD, REGION, USER, Place
from keystone.indexing.opensearch.store import OpenSearchStore
from keystone.indexing.store import to_record
from keystone.indexing.types import Document, Embedding, Segment, Span
from keystone.retrieval.backends import open_store
from keystone.retrieval.opensearch.dense import OpenSearchDense
from keystone.retrieval.opensearch.sparse import OpenSearchSparse
from keystone.runs.doctor.cluster import examine_cluster
from tests.support.indexes.small_corpus import write_index_file
from tests.support.servers.hostile_replies import TOO_LARGE
from tests.support.servers.json_server import JsonHandler, serve_json

pytestmark = pytest.mark.slow

COUNT = 3
META = {"format": FORMAT, "key": "k", "documents": COUNT, "faiss": "Flat", "left_out": {}, "cut": 0, "embedding": None}
SEGMENT = Segment("d1#0_0", Span("d1", 0, 4))
RECORD = to_record(Document("d1", "Text of it.", segments=(SEGMENT,)))
WHOLE = {"status": 200, "timed_out": False, "_shards": {"failed": 0}}
HITS = [[3.0, 0], [2.0, 2], [2.0, 1]]

Answers = dict[str, Any]
"""Answers by the last part of the path; a function gets the handler and answers itself."""


def answers() -> Answers:
    """The answers of a sound cluster."""
    settings = {"uuid": "u", "blocks": {"write": "true"}}
    mappings = {"_meta": {"keystone": META}, "properties": {"vector": {"dimension": 2}}}
    known = {"index.number_of_shards": "1", "index.max_result_window": "10000"}
    return {
        "": {"version": {"number": "3.5.0"}},
        "name": {"name": {"settings": {"index": settings}, "mappings": mappings}},
        "_mapping": {"name": {"mappings": mappings}},
        "_settings": {"name": {"settings": known, "defaults": {}}},
        "_msearch": {"responses": [{**WHOLE, "hits": {"hits": [{"sort": sort} for sort in HITS]}}]},
        "_mget": {"docs": [{"_id": "1", "_source": {"document": RECORD}}]},
    }


class Handler(JsonHandler):
    def do_GET(self) -> None:  # noqa: N802
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.state.get(self.path.split("?")[0].rpartition("/")[2], {})
        if callable(answer):
            answer(self)
        else:
            self.reply(answer)

    do_POST = do_GET  # noqa: N815


@contextmanager
def cluster(changed: Answers) -> Iterator[Index]:
    """An index in a cluster with some changed answers."""
    with serve_json(Handler, {**answers(), **changed}) as url, TemporaryDirectory() as folder:
        yield write_index_file(Index(Path(folder), "k", None, COUNT, {}, 0, "Flat", Place((url,), "name").at))


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (USER, PASSWORD, KEY, CA, REGION):
        monkeypatch.delenv(name, raising=False)


def sparse(index: Index) -> list[int]:
    found: list[int] = OpenSearchSparse(index).search(["q"], [{"bee": 1.0}], 3).of(0).tolist()
    return found


def dense(index: Index) -> list[int]:
    query = np.array([[0.5, 0.5]], np.float32)
    found: list[int] = OpenSearchDense(index).search(["q"], query, 3).of(0).tolist()
    return found


def documents(index: Index) -> list[Document]:
    return open_store(index).get([1])


def ids(index: Index) -> list[str]:
    return open_store(index).ids([1])


def rows(index: Index) -> list[int]:
    found: list[int] = open_store(index).rows(["d1"]).tolist()
    return found


def frequencies(index: Index) -> list[int]:
    return OpenSearchSparse(index).stem_frequencies(["bee"])


def refused(use: Callable[[Index], object], changed: Answers) -> str:
    """The one line of the error that names the URL."""
    with cluster(changed) as index, pytest.raises(UserError) as raised:
        use(index)
    said = str(raised.value)
    assert said.startswith(index.at["url"])
    assert said.isprintable()
    assert len(said) < 1500
    return said


def passages(index: Index) -> list[int]:
    return sorted(OpenSearchStore(index).passage_vectors([1]))


def packed(*fields: Any) -> Answers:
    own = [{"sort": [1], "fields": {"passages": list(fields)}}]
    return {"_msearch": {"responses": [{**WHOLE, "hits": {"hits": own}}]}}


def hits(*sorts: Any) -> Answers:
    return {"_msearch": {"responses": [{**WHOLE, "hits": {"hits": [{"sort": sort} for sort in sorts]}}]}}


def test_a_sound_cluster_is_searched() -> None:
    with cluster({}) as index:
        assert sparse(index) == [0, 1, 2]
        assert dense(index) == [0, 1, 2]
        assert documents(index) == [Document("d1", "Text of it.", segments=(SEGMENT,))]
    with cluster(packed("AAAAAA==")) as index:
        assert passages(index) == [1]
    with cluster(hits([1, "d1"])) as index:
        assert ids(index) == ["d1"]
        assert rows(index) == [1]


@pytest.mark.parametrize("use", [sparse, dense])
@pytest.mark.parametrize(
    ("sorts", "words"),
    [
        pytest.param([[None, 1]], "not a score and a row", id="no score"),
        pytest.param([["x", 1]], "not a score and a row", id="a score that is a text"),
        pytest.param([[1.0, "1"]], "not a score and a row", id="a row that is a text"),
        pytest.param([[1.0, True]], "not a score and a row", id="a row that is a truth value"),
        pytest.param([[1.0, 1.5]], "not a score and a row", id="half a row"),
        pytest.param([[1.0, -1]], "found row -1 or -1, expected 0 to 2", id="a negative row"),
        pytest.param([[1.0, 2**31]], "expected 0 to 2", id="a huge row"),
        pytest.param([[1.0, 2**62]], "expected 0 to 2", id="a row beyond float64"),
        pytest.param([[1.0, 3]], "found row 3 or 3, expected 0 to 2", id="a row beyond the last"),
        pytest.param([[1e300, 1]], "too large or ascend", id="a huge score"),
        pytest.param([[1.0, 1], [2.0, 0]], "too large or ascend", id="scores that ascend"),
        pytest.param([[2.0, 1], [1.0, 1]], "found a document twice", id="a document twice"),
        pytest.param([[2.0, 1]] * 4, "found 4 hits, expected at most 3", id="too many hits"),
        pytest.param([[1.0]], "with 1 sort keys, expected 2", id="one key"),
        pytest.param([[]], "with 0 sort keys, expected 2", id="no keys"),
        pytest.param([7], "iterable", id="no list of keys"),
    ],
)
def test_an_impossible_hit_is_an_error(use: Callable[[Index], object], sorts: list[Any], words: str) -> None:
    assert words in refused(use, hits(*sorts))


@pytest.mark.parametrize("score", [0.0, -1.0])
def test_a_score_that_no_inner_product_has_is_an_error(score: float) -> None:
    assert "expected more than 0" in refused(dense, hits([score, 1]))


@pytest.mark.parametrize(
    ("use", "changed", "words"),
    [
        pytest.param(sparse, {"": {"version": 5}}, "another form", id="a version that is a number"),
        pytest.param(sparse, {"": {"version": {"number": "three"}}}, "another form", id="a version that is none"),
        pytest.param(sparse, {"": []}, "another form", id="a greeting that is a list"),
        pytest.param(sparse, {"name": {"name": {}}}, "lacks 'settings'", id="no settings"),
        pytest.param(sparse, {"name": [1]}, "another form", id="an index that is a list"),
        pytest.param(sparse, {"_settings": {"name": {"settings": {}, "defaults": {}}}}, "lacks", id="no shards"),
        pytest.param(
            sparse,
            {"_settings": {"name": {"settings": {"index.number_of_shards": "1", "index.max_result_window": "0"},
                                    "defaults": {}}}},
            "expected at least 1", id="no window",
        ),
        pytest.param(sparse, {"_msearch": {"responses": []}}, "answers to 0 of 1 searches", id="too few answers"),
        pytest.param(sparse, {"_msearch": {"responses": [WHOLE] * 2}}, "answers to 2 of 1", id="too many answers"),
        pytest.param(sparse, {"_msearch": {"responses": [5]}}, "another form", id="an answer that is a number"),
        pytest.param(sparse, {"_msearch": []}, "another form", id="a list"),
        pytest.param(sparse, {"_msearch": TOO_LARGE["a bomb"]}, "more than 67,108,864 bytes", id="a bomb of hits"),
        pytest.param(dense, {"_mapping": {}}, "another form", id="no mapping"),
        pytest.param(dense, {"_mapping": {"name": {"mappings": {"properties": {"vector": {"dimension": "x"}}}}}},
                     "another form", id="a dimension that is none"),
        pytest.param(documents, {"_mget": {"docs": []}}, "another form", id="too few documents"),
        pytest.param(documents, {"_mget": {"docs": [{"_id": "0", "_source": {"document": RECORD}}]}},
                     "found document 0, expected 1", id="another document"),
        pytest.param(documents, {"_mget": {"docs": [{"_id": "1", "_source": {}}]}}, "lacks 'document'", id="no record"),
        pytest.param(documents, {"_mget": {"docs": [{"_id": "1"}]}}, "is not there any more", id="no document"),
        pytest.param(passages, packed(""), "found no vectors", id="no vectors"),
        pytest.param(passages, packed("AAAA"), "another form", id="half a number"),
        pytest.param(passages, packed("AAAAAAAA"), "another form", id="half a vector"),
        pytest.param(passages, packed(5), "another form", id="vectors that are a number"),
        pytest.param(passages, packed(), "another form", id="no field of vectors"),
        pytest.param(passages, hits([1]), "lacks 'fields'", id="no fields"),
        pytest.param(passages, hits(), "row 1 is not there any more", id="no passages"),
        pytest.param(ids, hits([2, "d2"]), "which was not asked for", id="another row"),
        pytest.param(ids, hits([1, "d\u0000"]), "a row below 3 and an id", id="an id with a control byte"),
        pytest.param(ids, hits([1, "d" * 10**6]), "a row below 3 and an id", id="an id of a million letters"),
        pytest.param(ids, hits([-1, "d"]), "a row below 3 and an id", id="an id of a negative row"),
        pytest.param(ids, hits(), "row 1 is not there any more", id="no id"),
        pytest.param(rows, hits([1, "other"]), "which was not asked for", id="another id"),
        pytest.param(rows, hits([3, "d1"]), "a row below 3 and an id", id="a row beyond the last"),
        pytest.param(frequencies, hits(), "lacks 'total'", id="no frequency"),
        pytest.param(
            frequencies, {"_msearch": {"responses": [{**WHOLE, "hits": {"total": {"value": 10**30}}}]}},
            "documents with a word, expected 0 to 3", id="a huge frequency",
        ),
    ],
)  # fmt: skip
def test_an_answer_of_another_form_is_one_error(use: Callable[[Index], object], changed: Answers, words: str) -> None:
    assert words in refused(use, changed)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"id": 5}, id="an id that is a number"),
        pytest.param({"id": "a b"}, id="an id with a space"),
        pytest.param({"id": "\x1b[2J"}, id="an id with control bytes"),
        pytest.param({"text": None}, id="no text"),
        pytest.param({"title": ["t"]}, id="a title that is a list"),
        pytest.param({"segments": [["s", 0, 10**6]]}, id="a segment beyond the text"),
        pytest.param({"segments": [["s", -2, 1]]}, id="a segment before the text"),
        pytest.param({"segments": [["s", "0", 1]]}, id="an offset that is a text"),
        pytest.param({"segments": [["s", 0]]}, id="a segment without an end"),
        pytest.param({"segments": 5}, id="segments that are a number"),
    ],
)
def test_a_document_of_another_form_is_an_error(change: dict[str, Any]) -> None:
    changed = {"_mget": {"docs": [{"_id": "1", "_source": {"document": {**RECORD, **change}}}]}}
    assert "another form" in refused(documents, changed)


def test_replies_with_documents_have_their_own_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opensearch_store, "DOCUMENTS_LIMIT_BYTES", 1000)
    record = {**RECORD, "text": "Text" * 300}
    changed = {"_mget": {"docs": [{"_id": "1", "_source": {"document": record}}]}}
    assert "expected at most 1,000" in refused(documents, changed)


def test_a_cluster_cannot_name_the_key_variable_of_its_embedding_model(tmp_path: Path) -> None:
    """Otherwise a writer to the cluster could make Keystone send any variable to any server."""
    model = {"model": "m", "url": "https://h/v1", "window": 1, "query_prefix": "", "passage_prefix": ""}
    for said, own in (("AWS_SECRET_ACCESS_KEY", None), (None, "MINE"), ("AWS_SECRET_ACCESS_KEY", "MINE")):
        meta = {**META, "embedding": {**model, "key_env": said}}
        found = answers()["name"]["name"] | {"mappings": {"_meta": {"keystone": meta}}}
        with cluster({"name": {"name": found}}) as index:
            place = Place((index.at["url"],), "name")
            made, _ = adopt_loaded(place, tmp_path / f"{said}-{own}", own)
        assert made.embedding == Embedding("m", "https://h/v1", 1, key_env=own)


@pytest.mark.parametrize(
    "wrong",
    [{"embedding": 5}, {"embedding": {"model": "m", "other": 1}}, {"documents": None, "left_out": 5, "key": []}],
)
def test_a_clusters_description_of_an_index_is_checked_or_unused(wrong: dict[str, Any], tmp_path: Path) -> None:
    found = answers()["name"]["name"] | {"mappings": {"_meta": {"keystone": {"key": "k"} | wrong}}}
    with cluster({"name": {"name": found}}) as index, pytest.raises(UserError):
        adopt_loaded(Place((index.at["url"],), "name"), tmp_path / "index")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "where",
    ["", "localhost:9200", "localhost:9200/docs", "http://localhost:92000", "http://localhost:1,http://[::1/name"],
)
def test_the_doctor_reports_what_is_no_url_of_a_cluster(where: str) -> None:
    (found,) = examine_cluster(where)
    assert found.state == "problem"
    assert "not an index of an OpenSearch cluster, expected one such as http" in found.message


@pytest.mark.parametrize("path", ["", "_stats", "name", "jvm,os", "plugins"])
@pytest.mark.parametrize("value", [[], 5, {"nodes": 5}, {"version": {"number": []}}])
def test_the_doctor_reports_a_cluster_with_impossible_answers(path: str, value: Any) -> None:
    with cluster({path: value}) as index:
        found = list(examine_cluster(f"{index.at['url']}/name"))
    assert found[-1].state == "problem"
