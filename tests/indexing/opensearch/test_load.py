"""Loading a real OpenSearch: it holds the corpus, analysed as Anserini does, even after faults and kills."""

import base64
import gzip
import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.lucene.java import java_class
from keystone.indexing.lucene.write import make_analyzer
from keystone.indexing.opensearch import load as loading
from keystone.indexing.opensearch.analysis import ANALYSIS, ANALYZER
from keystone.indexing.opensearch.build import adopt_loaded
from keystone.indexing.opensearch.cluster import connect, place_at, place_of
from keystone.indexing.opensearch.index import Target, create, index_body, vector_field
from keystone.indexing.opensearch.load import Upload, load, missing_rows
from keystone.indexing.store import DocumentStore, build_store
from keystone.indexing.types import Document, Embedding
from keystone.indexing.vectors import shards as vectors
from keystone.indexing.vectors.embed import embed_passages, embed_queries
from keystone.indexing.vectors.of_segments import segment_vectors
from keystone.retrieval.backends import open_store
from tests.support.indexes.small_corpus import CORPUS, write_corpus
from tests.support.places import SHARED
from tests.support.processes import run_with_kills
from tests.support.runs.command_line import keystone
from tests.support.servers.embeddings import serving
from tests.support.servers.opensearch import Cluster, call, start_cluster
from tests.support.waiting import join, wait_until

pytestmark = pytest.mark.slow

NAMES = iter(f"load-{number}" for number in range(10_000))
VERSIONS = ("opensearch", "older_opensearch")
SETTLED = {"blocks": {"write": "true"}, "number_of_replicas": "0"}


@pytest.fixture(params=VERSIONS)
def server(request: pytest.FixtureRequest) -> Cluster:
    """Each of the versions."""
    node: Cluster = request.getfixturevalue(request.param)
    return node


@pytest.fixture
def place(opensearch: Cluster) -> str:
    """A place without an index."""
    return f"{opensearch.url}/{next(NAMES)}"


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "REQUEST_DOCUMENTS", 4)
    monkeypatch.setattr(vectors, "SHARD_DOCUMENTS", 3)


def held(index: Index) -> list[dict[str, Any]]:
    """All documents that searches see, by row."""
    at = place_at(index.at)
    found: list[dict[str, Any]] = []
    assert index.documents
    while len(found) < index.documents:
        query = {"size": 1_000, "sort": ["row"], "query": {"range": {"row": {"gte": len(found)}}}}
        hits = call(at.urls[0], "POST", f"{at.path}/_search", query)["hits"]["hits"]
        if not hits:
            break
        found += [{"_id": hit["_id"], **hit["_source"]} for hit in hits]
    return found


def read_passages(index: Index) -> list[list[list[float]]]:
    """The vectors of all passages, by row."""
    found = segment_vectors(index, open_store(index), range(index.documents or 0))
    return [found[row].tolist() for row in sorted(found)]


def expected(corpus: Path, folder: Path) -> list[dict[str, Any]]:
    """The same documents from a store of the corpus."""
    store = DocumentStore(build_index(corpus, folder, BuildSettings(embedding=None))[0].store)
    records = map(json.loads, store.records(range(len(store))))
    return [{"_id": str(n), "row": n, "docid": found["id"], "document": found} for n, found in enumerate(records)]


def documents(number: int, seed: int = 7) -> Iterator[Document]:
    """Documents of sentences drawn at random."""
    choose, sentences = random.Random(seed), [s for _, text in CORPUS.values() for s in text.split(". ")]
    for n in range(number):
        yield Document(f"d{n:05}", ". ".join(choose.sample(sentences, choose.randint(1, 6))), f"title {n % 10}")


def write_documents(path: Path, number: int) -> Path:
    with path.open("w") as out:
        for document in documents(number):
            out.write(json.dumps({"id": document.id, "title": document.title, "text": document.text}) + "\n")
    return path


def target(place: str, shards: int = 1, replicas: int = 0) -> Target:
    return Target(place_of(place), shards, replicas)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("shards", [1, 3])
def test_an_index_holds_the_corpus_and_is_settled(server: Cluster, tmp_path: Path, shards: int) -> None:
    corpus, where = write_corpus(tmp_path / "corpus.jsonl"), f"{server.url}/{next(NAMES)}"
    index, built = build_index(
        corpus, tmp_path / "index", BuildSettings(embedding=None, opensearch=target(where, shards))
    )
    assert built
    assert (index.backend, index.documents) == ("opensearch", len(CORPUS))
    assert [path.name for path in index.folder.iterdir()] == ["index.json"]
    assert held(index) == expected(corpus, tmp_path / "local")
    name = place_at(index.at).name
    found = call(server.url, "GET", f"/{name}")[name]
    stored = found["settings"]["index"]
    assert {key: stored[key] for key in SETTLED} == SETTLED
    assert stored["number_of_shards"] == str(shards)
    assert not {"refresh_interval", "translog"} & stored.keys()
    meta = json.loads((index.folder / "index.json").read_bytes())
    assert {**found["mappings"]["_meta"]["keystone"], "at": index.at} == meta
    segments = call(server.url, "GET", f"/{name}/_segments")["indices"][name]["shards"]
    assert all(len(copy["segments"]) <= 1 for copies in segments.values() for copy in copies)
    assert len(segments) == shards


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("faiss", ["Flat", "HNSW16"])
def test_vectors_are_searched_as_faiss_searches_them(server: Cluster, tmp_path: Path, faiss: str) -> None:
    corpus, where = write_corpus(tmp_path / "corpus.jsonl"), f"{server.url}/{next(NAMES)}"
    with serving() as endpoint:
        model = Embedding("letters", endpoint.url)
        index, _ = build_index(
            corpus, tmp_path / "index", BuildSettings(embedding=model, faiss=faiss, opensearch=target(where))
        )
        store = build_index(corpus, tmp_path / "local", BuildSettings(embedding=None))[0].store
        passages = embed_passages(model, [document.contents for document in DocumentStore(store)])
        [asked] = embed_queries(model, ["Ash of an eruption"])
    script = {"field": "vector", "query_value": asked.tolist(), "space_type": "innerproduct"}
    exact = {"query": {"match_all": {}}, "script": {"source": "knn_score", "lang": "knn", "params": script}}
    query: dict[str, Any] = {"script_score": exact}
    if faiss != "Flat":
        query = {"knn": {"vector": {"vector": asked.tolist(), "k": len(CORPUS)}}}
    found = call(server.url, "POST", f"{place_at(index.at).path}/_search", {"size": 20, "query": query})["hits"]["hits"]
    scores = {int(hit["_id"]): hit["_score"] for hit in found}
    np.testing.assert_allclose([scores[row] for row in range(len(CORPUS))], 1 + passages @ asked, rtol=1e-6)
    assert index.faiss == faiss
    again, built = build_index(
        corpus, tmp_path / "index", BuildSettings(embedding=model, faiss=faiss, opensearch=target(where))
    )
    assert (again, built) == (index, False)


STRINGS = [
    "The students' study in the USA's work at NASA 123,456.78 it's",
    "don’t won't O'Neill’s fullwidth＇s ﬁne İstanbul STRASSE ß ς Σ",
    "a_b x.y z-w foo@bar.com http://x.org/a?b=1 C++ 3.5% $40 U.S.A.",
    "中文字符 ひらがな カタカナ 한국어 ไทย عربى",
    "e\u0301 é \u200b zero\u00adwidth nul\u0000 tab\t",
    "😀 👍🏽 running ran happily generalizations relational",
    "x" * 300 + " " + "y" * 255 + " " + "z" * 256,
    "the a of and",
    "",
]


def stems(text: str) -> list[str]:
    """The tokens that Anserini indexes for a text."""
    return list(java_class("io.anserini.analysis.AnalyzerUtils").analyze(make_analyzer(), text).toArray())


def analyzed(server: Cluster, texts: list[str]) -> list[str]:
    """The tokens of an index's analyzer, of all texts one after another."""
    name = "analysis"
    if name not in call(server.url, "GET", "/_aliases"):
        call(server.url, "PUT", f"/{name}", {"settings": {"index": {"number_of_replicas": 0}, "analysis": ANALYSIS}})
    asked = {"analyzer": ANALYZER, "text": texts}
    return [token["token"] for token in call(server.url, "POST", f"/{name}/_analyze", asked)["tokens"]]


@pytest.mark.parametrize("text", STRINGS)
def test_the_analyzer_is_anserinis(server: Cluster, text: str) -> None:
    assert analyzed(server, [text]) == stems(text)


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text(" abeinst'’.-_ΣİS", max_size=40)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WORDS, min_size=1, max_size=5))
def test_the_analyzer_is_anserinis_on_any_text(server: Cluster, texts: list[str]) -> None:
    assert analyzed(server, texts) == [stem for text in texts for stem in stems(text)]


@settings(max_examples=9, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_missing_rows_are_found(opensearch: Cluster, data: st.DataObject) -> None:
    """The missing rows are single ones or long ranges, and the requests have any width. Some rows come later."""
    count = data.draw(st.integers(1, 60))
    missing = set(range(count))
    place = place_of(f"{opensearch.url}/{next(NAMES)}")
    nodes = connect(place.urls, 1)
    create(nodes, place, index_body({"key": "k"}, 2, None))
    for _ in range(3):
        come = data.draw(st.sets(st.sampled_from(sorted(missing)))) if missing else set[int]()
        missing -= come
        lines = [line for row in come for line in ({"create": {"_id": str(row)}}, {"row": row, "docid": f"d{row}"})]
        if lines:
            assert not call(opensearch.url, "POST", f"{place.path}/_bulk?refresh=true", lines)["errors"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loading, "LISTED_ROWS", data.draw(st.integers(1, 20)))
            patch.setattr(loading, "SPLIT_PARTS", data.draw(st.integers(2, 5)))
            patch.setattr(loading, "REQUEST_RANGES", data.draw(st.integers(1, 7)))
            assert missing_rows(nodes, place, count) == sorted(missing)
    call(opensearch.url, "DELETE", place.path)


def test_another_corpus_cannot_take_the_name_of_an_index(tmp_path: Path, place: str) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    build_index(corpus, tmp_path / "index", BuildSettings(embedding=None, opensearch=target(place)))
    corpus.write_text(corpus.read_text().replace("Honey", "Money"))
    for shards in (1, 2):
        with pytest.raises(UserError, match=f"{place}: holds an index of another corpus or other settings"):
            build_index(corpus, tmp_path / "other", BuildSettings(embedding=None, opensearch=target(place, shards)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "index"]


def test_a_foreign_index_is_left_unchanged(opensearch: Cluster, tmp_path: Path, place: str) -> None:
    name = place_of(place).name
    call(opensearch.url, "PUT", f"/{name}", {"settings": {"number_of_replicas": 0}})
    call(opensearch.url, "POST", "/_aliases", {"actions": [{"add": {"index": name, "alias": f"{name}-alias"}}]})
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    for where, said in ((place, "keystone has not made"), (f"{place}-alias", f"an alias of {name}")):
        with pytest.raises(UserError, match=said):
            build_index(corpus, tmp_path / "index", BuildSettings(embedding=None, opensearch=target(where)))


def test_a_deleted_folder_is_made_again_without_loading(tmp_path: Path, place: str) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    index, _ = build_index(corpus, tmp_path / "index", BuildSettings(embedding=None, opensearch=target(place)))
    again, built = build_index(corpus, tmp_path / "again", BuildSettings(embedding=None, opensearch=target(place)))
    assert built
    assert (again.key, again.at, held(again)) == (index.key, index.at, held(index))


def test_documents_that_a_finished_index_lost_are_named(opensearch: Cluster, tmp_path: Path, place: str) -> None:
    corpus, at = write_corpus(tmp_path / "corpus.jsonl"), place_of(place)
    build_index(corpus, tmp_path / "index", BuildSettings(embedding=None, opensearch=target(place)))
    call(opensearch.url, "PUT", f"{at.path}/_settings", {"index.blocks.write": False})
    call(opensearch.url, "DELETE", f"{at.path}/_doc/3?refresh=true")
    call(opensearch.url, "PUT", f"{at.path}/_settings", {"index.blocks.write": True})
    lost = sorted(CORPUS)[3]
    with pytest.raises(UserError, match=f"1 documents are missing: '{lost}'; remove the index"):
        build_index(corpus, tmp_path / "again", BuildSettings(embedding=None, opensearch=target(place)))


def test_rows_that_a_note_wrongly_lists_as_loaded_are_sent(opensearch: Cluster, tmp_path: Path, place: str) -> None:
    build_store(documents(50), tmp_path / "store")
    store, meta, at = DocumentStore(tmp_path / "store"), {"key": "k"}, place_of(place)
    nodes = connect(at.urls, 1)
    create(nodes, at, index_body(meta, 1, None))
    uuid = call(opensearch.url, "GET", at.path)[at.name]["settings"]["index"]["uuid"]
    (tmp_path / "note").write_text(f"{uuid}\n0 10\n20 50\n")
    load(Upload(target(place), meta, store, None, tmp_path / "note"))
    assert missing_rows(nodes, at, 50) == []


def test_a_document_that_the_cluster_rejects_is_named(opensearch: Cluster, tmp_path: Path, place: str) -> None:
    build_store(documents(5), tmp_path / "store")
    body = index_body({"key": "k"}, 1, None)
    del body["mappings"]["properties"]["docid"]
    call(opensearch.url, "PUT", place_of(place).path, body)
    said = r"document 'd00000': rejected with status 400: strict_dynamic_mapping_exception: .*\[docid\]"
    with pytest.raises(UserError, match=said):
        load(Upload(target(place), {"key": "k"}, DocumentStore(tmp_path / "store"), None, tmp_path / "note"))


def test_an_index_that_the_cluster_cannot_hold_is_refused_before_the_work(tmp_path: Path, place: str) -> None:
    corpus = tmp_path / "missing.jsonl"
    corpus.write_text("{")  # would be reported if it were read
    with pytest.raises(UserError, match=r"cannot be made there: 400: .*number_of_shards.*1024"):
        build_index(corpus, tmp_path / "index", BuildSettings(embedding=None, opensearch=target(place, shards=5_000)))


def test_another_machine_attaches_to_a_loaded_index(opensearch: Cluster, tmp_path: Path, place: str) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    done = keystone("index", corpus, "--out", tmp_path / "index", "--no-dense", "--opensearch", place, "--shards", "2")
    assert done.returncode == 0, done.stderr
    done = keystone("index", f"opensearch:{place}", "--out", tmp_path / "other", "--quiet")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'other'}: {len(CORPUS)} documents\n")
    files = [(tmp_path / name / "index.json").read_bytes() for name in ("index", "other")]
    assert json.loads(files[0]) == json.loads(files[1])
    done = keystone("index", f"opensearch:{place}", "--out", tmp_path / "other", "--quiet")
    assert done.stdout.endswith("documents, already indexed\n")
    done = keystone("index", f"opensearch:{place}", "--out", tmp_path / "third", "--opensearch", place)
    assert "expected one of them" in done.stderr
    with pytest.raises(UserError, match="no such index; expected one that"):
        adopt_loaded(place_of(f"{place}-none"), tmp_path / "third")
    call(opensearch.url, "PUT", f"/{place_of(place).name}/_settings", {"index.blocks.write": False})
    with pytest.raises(UserError, match="not yet finished"):
        adopt_loaded(place_of(place), tmp_path / "third")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not an index of an OpenSearch cluster"),
        ("localhost:9200/name", "not an index of an OpenSearch cluster"),
        ("ftp://localhost/name", "not an index of an OpenSearch cluster"),
        ("http:///name", "not an index of an OpenSearch cluster"),
        ("http://a:9200,b:9200/name", "not an index of an OpenSearch cluster"),
        ("http://a:99999999/name", "not an index of an OpenSearch cluster"),
        ("http://a:9200?x=1/name", "not an index of an OpenSearch cluster"),
        ("http://ann:secret@a:9200/name", "holds a user or a password"),
        ("http://a:9200/", "is empty"),
        ("http://a:9200/Name", "capital letters"),
        ("http://a:9200/_name", "begins with '_'"),
        ("http://a:9200/-name", "begins with '-'"),
        ("http://a:9200/+name", "begins with '+'"),
        ("http://a:9200/.", "is not a name"),
        ("http://a:9200/..", "is not a name"),
        ("http://a:9200/a b", "holds ' '"),
        ("http://a:9200/a*", "holds '*'"),
        ("http://a:9200/a,b", "holds ','"),
        ("http://a:9200/a:b", "holds ':'"),
        ("http://a:9200/a#b", "holds '#'"),
        ("http://a:9200/a\nb", "holds"),
        ("http://a:9200/" + "ä" * 128, "longer than 255 bytes"),
    ],
)
def test_an_impossible_place_is_refused_before_any_request(text: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as error:
        place_of(text)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "urls", "name"),
    [
        ("http://localhost:9200/name", ("http://localhost:9200",), "name"),
        ("https://a.org/search/name-1.x", ("https://a.org/search",), "name-1.x"),
        ("http://[::1]:9200/n", ("http://[::1]:9200",), "n"),
        ("http://a:9200,http://b:9200/n", ("http://a:9200", "http://b:9200"), "n"),
        ("http://a:9200//n", ("http://a:9200",), "n"),
        ("http://a:9200/größe", ("http://a:9200",), "größe"),
        ("http://a:9200/" + "x" * 255, ("http://a:9200",), "x" * 255),
    ],
)
def test_a_place_is_urls_and_a_name(text: str, urls: tuple[str, ...], name: str) -> None:
    found = place_of(text)
    assert (found.urls, found.name) == (urls, name)
    assert place_at(found.at) == found


def test_every_accepted_name_can_be_created(opensearch: Cluster) -> None:
    """A name that Keystone accepts is valid for OpenSearch."""
    for name in ("a.b", "0", "größe", "x" * 255, "a+b", "a&b=c%d", "name;'()!~$`{}[]^"):
        place = place_of(f"{opensearch.url}/{name}")
        nodes = connect(place.urls, 1)
        create(nodes, place, index_body({"key": "k"}, 1, None))
        assert missing_rows(nodes, place, 1) == [0]
        call(opensearch.url, "DELETE", place.path)


@pytest.mark.parametrize("wanted", [[(0, 10)], [(5, 6)], [(4, 8)], [(1, 3), (6, 10)], []])
def test_each_document_is_sent_with_its_own_vector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: list[tuple[int, int]]
) -> None:
    """Within one shard, and over several."""
    monkeypatch.setattr(vectors, "SHARD_DOCUMENTS", 4)
    monkeypatch.setattr(loading, "REQUEST_DOCUMENTS", 3)
    build_store(documents(10), tmp_path / "store")
    values = np.arange(30, dtype=np.float32).reshape(10, 3) / 4096
    files = [tmp_path / f"{n}.npy" for n in range(3)]
    for n, file in enumerate(files):
        np.save(file, values[4 * n : 4 * n + 4])
    upload = Upload(
        Target(place_of("http://localhost:9200/name")),
        {},
        DocumentStore(tmp_path / "store"),
        vectors.Shards(files, 10, 0),
        tmp_path / "note",
    )
    found = [
        (row, json.loads(line))
        for batch in loading.batches(upload, wanted)
        for row, line in zip(batch.rows, batch.body.splitlines()[1::2], strict=True)
    ]
    assert [row for row, _ in found] == [row for start, stop in wanted for row in range(start, stop)]
    for row, sent in found:
        assert (sent["docid"], sent["row"]) == (f"d{row:05}", row)
        assert np.array_equal(np.array(sent["vector"], np.float32), values[row])


def test_each_document_is_sent_with_its_own_passages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one shard, and over several."""
    monkeypatch.setattr(vectors, "SHARD_DOCUMENTS", 4)
    build_store(documents(5), tmp_path / "store")
    values = np.arange(-15, 15, dtype=np.float32).reshape(10, 3) * 200
    files = [tmp_path / f"{n}.npy" for n in range(3)]
    for n, file in enumerate(files):
        np.save(file, values[4 * n : 4 * n + 4] / 4096)
    store, offsets = DocumentStore(tmp_path / "store"), np.array([0, 3, 3, 9, 10, 10])
    upload = Upload(
        Target(place_of("http://localhost:9200/name")),
        {},
        store,
        vectors.Shards(files, 10, 0),
        tmp_path / "note",
        offsets=offsets,
    )
    (batch,) = loading.batches(upload, [(0, 2), (2, 5)])
    sent = [json.loads(line) for line in batch.body.splitlines()[1::2]]
    for row, own in enumerate(np.split(values, offsets[1:-1])):
        packed = base64.b64decode(sent[row].get("passages", ""))
        assert np.array_equal(np.frombuffer(packed, "<i2"), own.ravel())
    assert [("passages" in one, "vector" in one) for one in sent] == [
        (bool(count), False) for count in np.diff(offsets).tolist()
    ]


@pytest.mark.parametrize("faiss", ["IVF256,Flat", "HNSW", "HNSW32,PQ8", "", "flat"])
def test_other_kinds_of_indexes_are_refused(faiss: str) -> None:
    with pytest.raises(UserError, match="expected Flat, or HNSW and a number"):
        vector_field(faiss, 4)


def test_a_load_killed_at_random_moments_ends_like_an_undisturbed_load(opensearch: Cluster, tmp_path: Path) -> None:
    name = next(NAMES)
    corpus, place = write_documents(tmp_path / "corpus.jsonl", 120), f"{opensearch.url}/{name}"
    local, _ = build_index(corpus, tmp_path / "whole", BuildSettings(passages=True))
    wanted, passages = expected(corpus, tmp_path / "local"), read_passages(local)

    def compare() -> None:
        index = open_index(tmp_path / "index")
        assert held(index) == wanted
        assert read_passages(index) == passages
        found = call(opensearch.url, "GET", f"/{name}/_stats/docs")["indices"][name]["primaries"]["docs"]
        assert (found["count"], found["deleted"]) == (120, 0)
        assert not list(tmp_path.glob(".*"))
        (tmp_path / "index" / "index.json").unlink()
        (tmp_path / "index").rmdir()
        call(opensearch.url, "DELETE", f"/{name}")

    small = (
        "from keystone.indexing.opensearch import load; from keystone.indexing.vectors import shards; "
        "load.REQUEST_DOCUMENTS = 3; shards.SHARD_DOCUMENTS = 20"
    )
    arguments = f"index {corpus} --out {tmp_path / 'index'} --opensearch {place} --shards 2 --quiet"
    arguments += " --dense passages"
    run_with_kills(*arguments.split(), times=12, kills=4, done=compare, code=small)


@pytest.mark.nightly
def test_a_collection_is_loaded_whole(server: Cluster, tmp_path: Path) -> None:
    corpus = SHARED / "scifact" / "corpus.jsonl.gz"
    if not corpus.exists():
        corpus = write_documents(tmp_path / "corpus.jsonl", 5_000)
    with serving() as endpoint:
        model = Embedding("letters", endpoint.url)
        where = target(f"{server.url}/{next(NAMES)}", shards=3)
        index, _ = build_index(
            corpus, tmp_path / "index", BuildSettings(embedding=model, faiss="HNSW16", opensearch=where)
        )
    assert held(index) == expected(corpus, tmp_path / "local")
    with gzip.open(corpus) if corpus.suffix == ".gz" else corpus.open("rb") as lines:
        assert index.documents == sum(1 for _ in lines)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "returns",
    [
        pytest.param(True, id="which returns"),
        pytest.param(False, id="which does not return"),
    ],
)
def test_nothing_is_lost_when_one_of_three_nodes_falls_in_the_middle_of_a_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returns: bool
) -> None:
    monkeypatch.setattr(loading, "REQUEST_DOCUMENTS", 20)
    build_store(documents(3_000), tmp_path / "store")
    store = DocumentStore(tmp_path / "store")
    with start_cluster(3) as nodes:
        place, note = f"{','.join(nodes.urls)}/{next(NAMES)}", tmp_path / "note"
        falling = nodes.nodes[2]

        def fall() -> None:
            wait_until(lambda: note.exists() and len(note.read_bytes()) > 400, "documents that are noted")
            falling.kill()
            if returns:
                time.sleep(2)
                falling.launch()

        thread = Thread(target=fall)
        thread.start()
        load(Upload(target(place, shards=3, replicas=1), {"key": "k"}, store, None, note, 90 if returns else 20))
        join(thread, "the node to fall and to return")
        at = place_of(place)
        assert missing_rows(connect(nodes.urls[:1], 1), at, len(store)) == []
        nodes.ready()
        found = call(nodes.url, "GET", f"{at.path}/_stats/docs")["indices"][at.name]["primaries"]["docs"]
        assert found["count"] == len(store)
