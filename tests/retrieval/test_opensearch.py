"""Searching real OpenSearch nodes: the same documents and rankings as from a local index."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.embedder import round_to_grid
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.opensearch.build import adopt_loaded
from keystone.indexing.opensearch.cluster import place_of
from keystone.indexing.opensearch.index import Target
from keystone.indexing.opensearch.load import Upload, load
from keystone.indexing.opensearch.search import open_cluster, search_each, search_of
from keystone.indexing.store import DocumentStore, build_store
from keystone.indexing.types import Document, Embedding
from keystone.indexing.vectors.faiss_index import build_dense
from keystone.indexing.vectors.of_segments import segment_vectors
from keystone.indexing.vectors.shards import Shards
from keystone.retrieval.backends import open_dense, open_sparse, open_store
from keystone.retrieval.faiss_search import FaissSearcher
from keystone.retrieval.types import Bm25, PassageScore, Query, Rankings, Statistics, offsets_of, ranked
from keystone.runs.trec.run_files import read_run
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.searches import search_all, search_bm25, search_embeddings
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES, write_corpus, write_index_file, write_topics
from tests.support.places import SHARED
from tests.support.runs.command_line import keystone
from tests.support.servers.opensearch import Cluster, call

pytestmark = pytest.mark.slow

TIGHT = 1e-5
DIMENSION = 24
VECTORS, PASSAGE_OWNERS = 1500, 300


@pytest.fixture(scope="module", params=["opensearch", "older_opensearch"])
def server(request: pytest.FixtureRequest) -> Cluster:
    """A node of each version."""
    node: Cluster = request.getfixturevalue(request.param)
    return node


Loaded = Callable[[str, int], Index]


@pytest.fixture(scope="module")
def loaded(server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """A collection without vectors in an index of so many shards."""
    made: dict[tuple[str, int], Index] = {}

    def index_of(name: str, shards: int) -> Index:
        if (name, shards) not in made:
            target = Target(place_of(f"{server.url}/{name}-{shards}"), shards)
            out = tmp_path_factory.mktemp(name) / "index"
            made[name, shards] = build_index(collection(name), out, BuildSettings(embedding=None, opensearch=target))[0]
        return made[name, shards]

    return index_of


@pytest.fixture(scope="session")
def lucene(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Index]:
    """A collection in a local index, without vectors."""
    made: dict[str, Index] = {}

    def index_of(name: str) -> Index:
        if name not in made:
            out = tmp_path_factory.mktemp(name) / "index"
            made[name] = build_index(collection(name), out, BuildSettings(embedding=None))[0]
        return made[name]

    return index_of


@pytest.fixture(scope="session", autouse=True)
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> None:
    SMALL.append(write_corpus(tmp_path_factory.mktemp("small-corpus") / "corpus.jsonl"))


SMALL: list[Path] = []


def collection(name: str) -> Path:
    if name == "small":
        return SMALL[0]
    if not SHARED.exists():
        pytest.skip("the real collections are not on this machine")
    return next((SHARED / name).glob("corpus.jsonl*"))


def topics_of(name: str) -> tuple[list[str], list[str]]:
    if name == "small":
        return list(CORPUS), [f"{title} {text}" for title, text in CORPUS.values()]
    topics = read_topics(SHARED / name / "topics.jsonl")
    return [topic.id for topic in topics], [topic.narrative for topic in topics]


def bm25(index: Index, name: str, depth: int, statistics: Statistics = "global") -> Rankings:
    return open_sparse(index, open_store(index), Bm25(statistics=statistics)).search(*topics_of(name), depth, 2)


def differing(one: Rankings, other: Rankings, relative: float = TIGHT) -> list[str]:
    """The queries whose rankings are not the same: documents may change places only where scores are so close."""
    wrong = []
    for i, name in enumerate(one.query_ids):
        scores, others = one.scores_of(i), other.scores_of(i)
        same = len(scores) == len(others) and np.allclose(scores, others, rtol=relative, atol=0)
        if same:
            moved = one.of(i) != other.of(i)
            places = {row: place for place, row in enumerate(one.of(i).tolist())}
            last = scores[-1] if len(scores) else 0.0
            for place in np.flatnonzero(moved).tolist():
                before = places.get(int(other.of(i)[place]))
                score = last if before is None else scores[before]
                same &= bool(np.isclose(score, others[place], rtol=relative, atol=0))
        if not same:
            wrong.append(name)
    return wrong


@pytest.mark.parametrize(
    "name", ["small", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("scifact", "arguana"))]
)
def test_one_shard_ranks_as_lucene_does(name: str, loaded: Loaded, lucene: Callable[[str], Index]) -> None:
    assert differing(bm25(lucene(name), name, 1000), bm25(loaded(name, 1), name, 1000)) == []


def test_shards_with_shared_word_counts_rank_like_one_shard(loaded: Loaded, lucene: Callable[[str], Index]) -> None:
    """Alone, each shard has weights of its own: then hardly a ranking is the same."""
    expected = bm25(lucene("scifact"), "scifact", 1000)
    three = loaded("scifact", 3)
    assert differing(expected, bm25(three, "scifact", 1000)) == []
    alone = differing(expected, bm25(three, "scifact", 1000, "local"))
    assert len(alone) > len(expected) / 2
    assert differing(bm25(loaded("scifact", 1), "scifact", 100, "local"), expected.top(100)) == []


def test_a_run_over_opensearch_writes_the_files_of_a_local_one(server: Cluster, tmp_path: Path, index: Index) -> None:
    corpus, topics = write_corpus(tmp_path / "corpus.jsonl"), write_topics(tmp_path / "topics.jsonl")
    place = f"{server.url}/whole-run"
    shown = keystone("index", corpus, "--out", tmp_path / "remote", "--opensearch", place, "--shards", "2", "-q")
    assert shown.returncode == 0, shown.stderr
    files = {}
    for name, folder in {"local": index.folder, "remote": tmp_path / "remote"}.items():
        config: dict[str, object] = {"run_id": "r", "index": str(folder), "topics": str(topics)}
        config |= {
            "out": str(tmp_path / "runs" / name),
            "retrieval": {"depth": 8, "feedback": "rm3"},
            "fusion": {"depth": 6},
        }
        config |= {"queries": {"variants": 3, "topic": "phrase"}, "answer": {"documents": 5, "words": 60}}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(config))
        shown = keystone("run", tmp_path / f"{name}.yaml", "-q")
        assert shown.returncode == 0, shown.stderr
        found = sorted((tmp_path / "runs" / name / "r").glob("*"))
        files[name] = {path.name: path.read_bytes() for path in found if path.suffix in (".trec", ".tsv", ".jsonl")}
    assert "bm25.trec" in files["local"]
    assert files["local"].keys() == files["remote"].keys()
    changed = {name for name in files["local"] if files["local"][name] != files["remote"][name]}
    assert changed <= ({"bm25.trec", "hybrid.trec"} if server.version.startswith("2.") else set())
    for name in changed:
        local, remote = (read_run(tmp_path / "runs" / place / "r" / name).list_hits() for place in ("local", "remote"))
        assert {t: dict(own) for t, own in local.items()} == {
            t: pytest.approx(dict(own), rel=1e-5) for t, own in remote.items()
        }


def test_documents_are_read_back_unchanged(loaded: Loaded, lucene: Callable[[str], Index]) -> None:
    local, remote = open_store(lucene("small")), open_store(loaded("small", 3))
    assert len(remote) == len(local) == len(CORPUS)
    assert list(remote) == list(local)
    rows = [3, 0, 3, 8]
    assert remote.get(rows) == local.get(rows)
    assert remote.get([]) == []
    assert remote.ids(rows) == local.ids(rows)
    names = ["wasps", "no such", "", "bees", "wasps", "\ud800", "a\0"]
    assert remote.rows(names).tolist() == local.rows(names).tolist()
    assert remote.rows([]).tolist() == []
    for wrong in (-1, len(CORPUS)):
        with pytest.raises(IndexError, match=f"row {wrong} is not in the store"):
            remote.get([0, wrong])


def test_frequencies_are_those_of_all_shards(loaded: Loaded, lucene: Callable[[str], Index]) -> None:
    local, remote = (open_sparse(own, open_store(own)) for own in (lucene("small"), loaded("small", 3)))
    stems = sorted({stem for _, text in CORPUS.values() for stem in stems_of(text)})
    assert remote.stem_frequencies([*stems, "zzyzx"]) == local.stem_frequencies([*stems, "zzyzx"])
    words = ["the", "bees", "Honey", "well-known", "honey's", "", "zzyzx"]
    assert remote.document_frequencies(words) == local.document_frequencies(words)


@pytest.mark.parametrize("text", ["", "the of and", "!?", "zzyzx"], ids=["empty", "stop words", "signs", "unknown"])
def test_a_query_without_known_words_finds_nothing(text: str, loaded: Loaded) -> None:
    own = loaded("small", 3)
    found = open_sparse(own, open_store(own)).search(["1", "2", "3"], ["honey", text, "ice"], 5)
    assert [len(found.of(i)) > 0 for i in range(3)] == [True, False, True]


@pytest.mark.parametrize("feedback", ["rm3", "rocchio"])
def test_feedback_weighs_stems_as_lucene_does(feedback: str, loaded: Loaded, lucene: Callable[[str], Index]) -> None:
    queries = [Query(name, name, text, text, text) for name, text in NARRATIVES.items()]
    one, other = (
        search_bm25(own, open_store(own), queries, depth=9, feedback=feedback)
        for own in (lucene("small"), loaded("small", 3))
    )
    assert differing(one, other, 1e-4) == []


def test_a_query_with_more_words_than_a_cluster_takes_is_searched_exactly(
    loaded: Loaded, lucene: Callable[[str], Index]
) -> None:
    unknown = " ".join(f"w{n}" for n in range(1500))
    texts = [f"honey {unknown} bees ash", f"{' '.join(text for _, text in CORPUS.values())} {unknown}", "honey"]
    one, other = (
        open_sparse(own, open_store(own)).search(["a", "b", "c"], texts, depth)
        for own, depth in ((lucene("small"), 4), (loaded("small", 3), 4))
    )
    assert [len(one.of(i)) for i in range(3)] == [4, 4, 4]
    assert differing(one, other) == []


def test_a_ranking_deeper_than_one_answer_comes_in_pages(server: Cluster, loaded: Loaded) -> None:
    own = loaded("small", 3)
    searcher = partial(open_sparse, own, open_store(own))
    whole = searcher().search(*topics_of("small"), 9)
    path = f"/{own.at['name']}/_settings"
    call(server.url, "PUT", path, {"index": {"max_result_window": 2}})
    try:
        paged = searcher().search(*topics_of("small"), 9)
        assert open_store(own).ids(range(9)) == sorted(CORPUS)
    finally:
        call(server.url, "PUT", path, {"index": {"max_result_window": None}})
    assert paged.docs.tolist() == whole.docs.tolist()
    assert paged.scores.tolist() == whole.scores.tolist()


ANALYZED = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("aeinst'’. -\u00ad\u200d")), max_size=60
)


@settings(max_examples=60)
@given(texts=st.lists(st.one_of(ANALYZED, st.sampled_from([text for _, text in CORPUS.values()])), max_size=12))
def test_the_cluster_finds_the_stems_that_anserini_finds(opensearch: Cluster, texts: list[str]) -> None:
    from keystone.indexing.opensearch.index import index_body

    if not ANALYZING:
        call(opensearch.url, "PUT", "/analyzing", index_body({"key": "none"}, 1, None))
        ANALYZING.append("made")
    for text in filter(str.strip, texts):
        found = call(opensearch.url, "POST", "/analyzing/_analyze", {"analyzer": "anserini", "text": text})
        assert [token["token"] for token in found["tokens"]] == stems_of(text)


ANALYZING: list[str] = []


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Shards]:
    """A store and vectors of its documents, of which many tie."""
    folder = tmp_path_factory.mktemp("vectors")
    random = np.random.default_rng(5)
    drawn = round_to_grid(random.normal(size=(VECTORS, DIMENSION)))
    drawn[random.integers(0, VECTORS, VECTORS // 3)] = drawn[0]
    build_store((Document(f"d{row:05d}", f"text {row}") for row in range(VECTORS)), folder / "store")
    np.save(folder / "00000000.npy", drawn)
    return folder, Shards([folder / "00000000.npy"], VECTORS, 0)


@pytest.fixture(scope="module")
def held_vectors(server: Cluster, vectors: tuple[Path, Shards]) -> Callable[[str, int], Index]:
    """An index of the vectors, by FAISS's name of its kind, in so many shards."""
    folder, shards = vectors
    made: dict[tuple[str, int], Index] = {}

    def index_of(kind: str, parts: int) -> Index:
        place = place_of(f"{server.url}/{kind.lower()}-{parts}")
        if (kind, parts) not in made:
            meta = {"key": f"{kind}-{parts}", "faiss": kind}
            note = folder / f"{kind}-{parts}-{server.version}"
            load(Upload(Target(place, parts), meta, DocumentStore(folder / "store"), shards, note))
            own = Index(folder / f"{kind}-{parts}-index", meta["key"], Embedding(), VECTORS, {}, 0, kind, place.at)
            made[kind, parts] = write_index_file(own)
        return made[kind, parts]

    return index_of


def asked(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return round_to_grid(np.random.default_rng(6).normal(size=(count, DIMENSION)))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("depth", [1, 10, 700, 2000])
def test_exact_dense_search_equals_faiss(
    parts: int, depth: int, held_vectors: Callable[[str, int], Index], vectors: tuple[Path, Shards]
) -> None:
    folder, shards = vectors
    if not (folder / "flat.faiss").exists():
        build_dense(shards, "Flat", folder / "flat.faiss")
    faiss = FaissSearcher([folder / "flat.faiss"])
    queries = np.concatenate([asked(20), next(iter(shards))[:1]])
    names = [str(number) for number in range(len(queries))]
    expected = faiss.search(names, queries, depth)
    dense = open_dense(held_vectors("Flat", parts))
    found = dense.search(names, queries, depth)
    assert dense.dimension == faiss.dimension == DIMENSION
    assert found.docs.tolist() == expected.docs.tolist()
    near = expected.scores > -0.35
    assert found.scores[near].tolist() == expected.scores[near].tolist()
    assert np.allclose(found.scores, expected.scores, atol=1e-6)


@pytest.mark.parametrize("parts", [1, 3])
def test_documents_rank_by_their_passages_as_in_a_plain_twin(server: Cluster, tmp_path: Path, parts: int) -> None:
    """Many passages tie, and some documents have none."""
    random, name = np.random.default_rng(8), f"passages-{parts}"
    offsets = offsets_of(random.integers(0, 8, PASSAGE_OWNERS))
    own = round_to_grid(random.normal(size=(offsets[-1], DIMENSION)))
    own[random.integers(0, len(own), len(own) // 3)] = own[0]
    np.save(tmp_path / "00000000.npy", own)
    build_store((Document(f"d{row:05d}", f"text {row}") for row in range(PASSAGE_OWNERS)), tmp_path / "store")
    place, meta = place_of(f"{server.url}/{name}"), {"key": name, "faiss": "Flat", "passages": True}
    store, shards = DocumentStore(tmp_path / "store"), Shards([tmp_path / "00000000.npy"], len(own), 0)
    load(Upload(Target(place, parts), meta, store, shards, tmp_path / "note", offsets=offsets))
    index = Index(tmp_path / name, name, Embedding(), PASSAGE_OWNERS, {}, 0, "Flat", place.at, passages=True)
    write_index_file(index)
    queries = np.concatenate([asked(6), own[:1], -own[:1]])
    names = [str(number) for number in range(len(queries))]
    products = [np.split(query, offsets[1:-1]) for query in (queries @ own.T).astype(np.float64)]
    rows = np.flatnonzero(np.diff(offsets))
    for best, weight, depth in ((1, 0, 10), (1, 0.3, 400), (3, 0.5, 400), (9, 0, 100), (2, 1, 50)):
        scores = [
            [(1 - weight) * np.sort(one[row])[-best:].mean() + weight * one[row][0] for row in rows.tolist()]
            for one in products
        ]
        expected = ranked(names, [rows] * len(queries), list(np.array(scores, dtype=np.float32)), depth)
        dense = open_dense(index, score=PassageScore(best, weight))
        found = dense.search(names, queries, depth)
        assert found.docs.tolist() == expected.docs.tolist()
        assert found.scores.tobytes() == expected.scores.tobytes()
        assert dense.dimension == DIMENSION


LONG_QUERIES = [Query("1", text, text, text, text) for text in ("pollen of the wasps", "ice and bees", "field 59")]


def write_long_documents(path: Path) -> Path:
    with path.open("w") as file:
        for name, count in (("bees", 60), ("ice", 41), ("short", 1), ("wasps", 75)):
            text = " ".join(f"The {name} of field {n} carry pollen to the {n} flowers near it." for n in range(count))
            file.write(json.dumps({"_id": name, "text": text}) + "\n")
    return path


def test_long_documents_rank_like_those_of_a_local_index_of_passages(opensearch: Cluster, tmp_path: Path) -> None:
    """The build chooses passages by itself, and their vectors come back unchanged."""
    corpus, place = write_long_documents(tmp_path / "corpus.jsonl"), place_of(f"{opensearch.url}/long")
    local, _ = build_index(corpus, tmp_path / "local", BuildSettings(passages=True))
    build_index(corpus, tmp_path / "remote", BuildSettings(passages=None, opensearch=Target(place, 2)))
    remote, _ = adopt_loaded(place, tmp_path / "adopted")
    assert (remote.passages, remote.documents, remote.cut) == (True, 4, local.cut)
    for score in (PassageScore(), PassageScore(2, 0.5)):
        one, other = (search_embeddings(own, LONG_QUERIES, passages=score) for own in (local, remote))
        assert one.docs.tolist() == other.docs.tolist()
        assert one.scores.tobytes() == other.scores.tobytes()
    kept, held = (segment_vectors(own, open_store(own), [3, 0, 2, 3]) for own in (local, remote))
    assert {row: own.tolist() for row, own in kept.items()} == {row: own.tolist() for row, own in held.items()}
    assert not (remote.folder / "segments.sqlite").exists()
    with pytest.raises(UserError, match=r"retrieval\.faiss: found 'nprobe=9', expected none"):
        search_embeddings(remote, LONG_QUERIES, faiss="nprobe=9")


def test_a_pool_of_passages_ranks_like_that_of_a_local_index(opensearch: Cluster, tmp_path: Path) -> None:
    corpus, target = write_long_documents(tmp_path / "corpus.jsonl"), Target(place_of(f"{opensearch.url}/long-pool"))
    plain = BuildSettings(faiss=None, passages=True)
    found = []
    for name, own in (("local", plain), ("remote", replace(plain, opensearch=target))):
        index, _ = build_index(corpus, tmp_path / name, own)
        found.append(
            search_all(index, open_store(index), LONG_QUERIES[:2], depth=2, passages=PassageScore(2, 0.5))["dense"]
        )
    assert found[0].docs.tolist() == found[1].docs.tolist()
    assert found[0].scores.tobytes() == found[1].scores.tobytes()
    assert len(found[0].docs) == 4


def test_a_graph_finds_nearly_all_exact_hits(held_vectors: Callable[[str, int], Index]) -> None:
    names = [str(number) for number in range(20)]
    exact = open_dense(held_vectors("Flat", 1)).search(names, asked(20), 50)
    graph = open_dense(held_vectors("HNSW16", 2), "efSearch=400").search(names, asked(20), 50)
    shared = [len(np.intersect1d(exact.scores_of(i), graph.scores_of(i))) / 50 for i in range(20)]
    assert np.mean(shared) > 0.9


@pytest.mark.parametrize(
    ("kind", "parameters", "depth", "words"),
    [
        pytest.param("Flat", "efSearch=9", 5, "retrieval.faiss: found 'efSearch=9', expected none", id="exact"),
        pytest.param("HNSW16", "nprobe=9", 5, "found 'nprobe=9', expected efSearch=N alone", id="no such"),
        pytest.param("HNSW16", "", 10_001, "retrieval.depth: found 10001, expected at most 10000", id="too deep"),
    ],
)
def test_a_setting_that_a_cluster_cannot_serve_is_refused_by_name(
    kind: str, parameters: str, depth: int, words: str, held_vectors: Callable[[str, int], Index]
) -> None:
    with pytest.raises(UserError, match=words):
        open_dense(held_vectors(kind, 1 if kind == "Flat" else 2), parameters).search(["1"], asked(1), depth)


def test_a_search_that_the_cluster_refuses_is_named(loaded: Loaded) -> None:
    cluster = open_cluster(loaded("small", 1))
    wrong = [search_of({"match_all": {}}, 1, "query 6"), search_of({"match_all": {}}, 1, "query 7", ["no_such"])]
    with pytest.raises(UserError, match=r"small-1: query 7: refused with status 400: .*no_such"):
        search_each(cluster, wrong, lambda answer: answer)


def test_another_index_at_its_place_is_refused(loaded: Loaded, tmp_path: Path) -> None:
    own = loaded("small", 1)
    for wrong, words in (
        (replace(own, key="other"), "found another index at"),
        (replace(own, at={**own.at, "name": "no-such"}), "found no index at"),
    ):
        for opened in (open_store, partial(open_sparse, store=DocumentStore.__new__(DocumentStore)), open_dense):
            with pytest.raises(UserError, match=words):
                opened(write_index_file(replace(wrong, folder=tmp_path / words)))


def test_the_doctor_knows_the_cluster_and_the_index(server: Cluster, loaded: Loaded) -> None:
    own = loaded("small", 3)
    shown = keystone("doctor", "--opensearch", f"{server.url}/{own.at['name']}")
    assert shown.returncode == 0, shown.stdout
    for line in (
        f"OpenSearch: {server.version}",
        "note     heap: node-1: 0.5 GiB",
        "ok       k-NN: installed",
        "ok       analyzer: the same stems as Anserini's",
        "ok       shards: green",
        f"ok       documents: {len(CORPUS)}",
        "ok       copies: 0 besides the primary shards",
        "note     size: 0.00 GB in 3 shards: 1 would do",
    ):
        assert line in shown.stdout
    assert ("ranks each shard for itself" in shown.stdout) == server.version.startswith("2.")
    assert "segments" not in shown.stdout
    alone = keystone("doctor", "--opensearch", server.url)
    assert alone.returncode == 0
    assert "documents" not in alone.stdout
    none = keystone("doctor", "--opensearch", f"{server.url}/no-such")
    assert none.returncode == 1
    assert f"keystone index CORPUS --opensearch {server.url}/no-such" in none.stdout


def test_the_doctor_finds_another_analyzer(opensearch: Cluster) -> None:
    from keystone.indexing.opensearch.index import index_body

    body = deepcopy(index_body({"key": "k", "documents": 0}, 1, None))  # it shares the analysis of all indexes
    body["settings"]["analysis"]["filter"]["porter"]["language"] = "porter2"
    call(opensearch.url, "PUT", "/other-stems", body)
    shown = keystone("doctor", "--opensearch", f"{opensearch.url}/other-stems")
    assert shown.returncode == 1
    assert "problem  analyzer: found " in shown.stdout
    assert "problem  documents: 0 so far" in shown.stdout
