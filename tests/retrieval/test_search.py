"""BM25 and dense search on a real Lucene and a real FAISS index."""

import gc
import json
import math
import re
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.io.writing import lock_folder
from keystone.indexing.lucene.java import java_class, java_error
from keystone.indexing.lucene.write import build_lucene
from keystone.indexing.store import DocumentStore
from keystone.indexing.types import WORDS, Document
from keystone.indexing.vectors.embed import embed_queries
from keystone.retrieval.backends import open_store
from keystone.retrieval.bm25 import Feedback, rm3, rocchio, weigh_segments
from keystone.retrieval.lucene.postings import MOST_WORDS
from keystone.retrieval.lucene.search import LuceneSearcher
from keystone.retrieval.search import search_all as search_systems
from keystone.retrieval.system import OpenIndex, Rows, System
from keystone.retrieval.types import K1, B, Query, Rankings, ranked
from tests.support.indexes.searches import make_system, search_all, search_bm25, search_embeddings
from tests.support.indexes.small_corpus import CORPUS, write_corpus

BOTH: list[str] = ["bm25", "dense"]


def query(text: str, number: int = 1) -> Query:
    return Query("1", f"1-{number}", text, text, text)


def found(index: Index, rankings: Rankings, i: int = 0) -> list[str]:
    return DocumentStore(index.store).ids(rankings.of(i))


@pytest.mark.slow
@pytest.mark.parametrize(("k1", "b"), [(K1, B), (1.2, 0.75), (0.0, 0.4), (3.0, 1.0)])
def test_bm25_scores_follow_the_formula(index: Index, k1: float, b: float) -> None:
    """Unstemmed words of the small corpus, so that the analyzer only has to drop nothing that we count."""
    tokens = {name: re.findall("[a-z]+", f"{title} {text}".lower()) for name, (title, text) in CORPUS.items()}
    searcher = LuceneSearcher(index.lucene)
    lengths = {name: np.count_nonzero(searcher.document_frequencies(words)) for name, words in tokens.items()}
    average = sum(lengths.values()) / len(lengths)
    holding = [name for name, words in tokens.items() if "ash" in words]
    idf = math.log(1 + (len(tokens) - len(holding) + 0.5) / (len(holding) + 0.5))
    rankings = search_bm25(index, open_store(index), [query("ash")], depth=10, k1=k1, b=b)
    assert sorted(found(index, rankings)) == sorted(holding)
    for name, score in zip(found(index, rankings), rankings.scores_of(0), strict=True):
        tf = Counter(tokens[name])["ash"]
        expected = idf * tf / (tf + k1 * (1 - b + b * lengths[name] / average))
        assert score == pytest.approx(expected, rel=1e-3)


def test_equal_scores_are_ordered_by_document_id(index: Index) -> None:
    for system, rankings in search_all(index, open_store(index), [query("twins in the kitchen")], BOTH, 9).items():
        ids = found(index, rankings)
        assert ids.index("twin-a") + 1 == ids.index("twin-b"), system


@pytest.mark.parametrize(
    ("text", "first"),
    [
        pytest.param("how do bees dance", "bees", id="words of one document"),
        pytest.param("volcanic eruptions", "volcano", id="other forms of its words"),
    ],
)
def test_both_searches_find_the_obvious_document(index: Index, text: str, first: str) -> None:
    for rankings in search_all(index, open_store(index), [query(text)], BOTH, 5).values():
        assert found(index, rankings)[0] == first


@pytest.mark.parametrize("text", ["", "the of and", "!?", "zzyzx"], ids=["empty", "stop words", "signs", "unknown"])
def test_a_query_without_known_words_finds_nothing_by_bm25(index: Index, text: str) -> None:
    rankings = search_bm25(index, open_store(index), [query("honey"), query(text, 2), query("ice", 3)], depth=5)
    assert [len(rankings.of(i)) > 0 for i in range(3)] == [True, False, True]


@pytest.mark.slow
def test_a_query_of_more_words_than_lucene_takes_is_named(index: Index) -> None:
    most, more = (" ".join(f"w{n}" for n in range(count)) + " honey" for count in (MOST_WORDS - 1, MOST_WORDS))
    store = open_store(index)
    assert found(index, search_all(index, store, [query(most)], ["bm25"], 5)["bm25"])
    with pytest.raises(java_error(), match="numHits must be > 0"):  # a fault of the caller, not of the index
        LuceneSearcher(index.lucene).search(["1"], ["honey"], 0)
    with pytest.raises(UserError, match=r"query '1-2': found 65,537 distinct words, expected at most 65,536: shorten"):
        search_all(index, store, [query("honey"), query(more, 2)], ["bm25"], 5)


@pytest.mark.slow
def test_the_same_rankings_on_any_number_of_threads(index: Index) -> None:
    queries = [query(text, n) for n, (_, text) in enumerate(CORPUS.values())]
    one, four = (search_all(index, open_store(index), queries, BOTH, 5, threads=threads) for threads in (1, 4))
    for system, rankings in one.items():
        assert rankings.docs.tobytes() == four[system].docs.tobytes()
        assert rankings.scores.tobytes() == four[system].scores.tobytes()


@pytest.mark.parametrize("systems", [["bm25", "dense", "hyde", "query2doc"], ["query2doc", "hyde"]])
def test_passages_are_searched_as_texts_of_their_own(index: Index, systems: list[str]) -> None:
    """A query without a passage stands before one that has a passage, and finds nothing by it."""
    store, passage = open_store(index), "Lava and ash come out of the crust of the earth."
    queries = [query("honey"), replace(query("what erupts?", 2), passage=passage)]
    found = search_all(index, store, queries, systems, 5)
    assert list(found) == systems
    alone = replace(queries[1], sparse_text="what erupts? " * 5 + passage, dense_text=passage)
    for system, twin in search_all(index, store, [alone], BOTH, 5).items():
        by_passage = found["query2doc" if system == "bm25" else "hyde"]
        assert (by_passage.of(0).tolist(), by_passage.of(1).tolist()) == ([], twin.of(0).tolist())
        assert by_passage.scores_of(1).tolist() == twin.scores_of(0).tolist()
    for rankings in search_all(index, store, [query("honey")], ["hyde", "query2doc"], 5).values():
        assert rankings.of(0).tolist() == [], "no query has a passage"
    for system, twin in search_all(index, store, queries, BOTH, 5).items():
        assert system not in found or found[system].docs.tolist() == twin.docs.tolist()


def test_a_setting_of_a_system_may_be_a_list(index: Index) -> None:
    """Equal systems are searched once."""
    searched: list[list[str]] = []

    class FieldSystem(System):
        lowest: ClassVar[float] = 0.0
        lane: ClassVar[str] = "cpu"
        kind: Literal["fields"] = "fields"
        names: list[str]

        def search(self, _opened: OpenIndex, queries: Sequence[Query], _within: Rows | None) -> Rankings:
            searched.append(self.names)
            docs, scores = np.arange(2, dtype=np.int32), np.array([2.0, 1.0])
            return ranked([one.id for one in queries], [docs] * len(queries), [scores] * len(queries), self.depth)

    systems = {name: FieldSystem(names=[of]) for name, of in {"a": "title", "b": "title", "c": "text"}.items()}
    found = search_systems(systems, OpenIndex(index, open_store(index)), [query("bees")], make_system("bm25"))
    assert list(found) == ["a", "b", "c"]
    assert searched == [["title"], ["text"]]


@pytest.mark.parametrize(
    ("order", "rows", "message"),
    [
        pytest.param(
            [1, 0], [0, 1], r"ranked the queries \('1-2', '1-1'\), expected \('1-1', '1-2'\)", id="another order"
        ),
        pytest.param([0], [0, 1], r"ranked the queries \('1-1',\), expected", id="too few"),
        pytest.param([0, 1, 1], [0, 1], r"ranked the queries \('1-1', '1-2', '1-2'\), expected", id="too many"),
        pytest.param([0, 1], [1, 1], "query 1-1: ranked a document twice", id="a document twice"),
        pytest.param([0, 1], [-1, 0], "query 1-1: ranked .* a row below 0", id="a row below 0"),
        pytest.param(
            [0, 1], [0, 10**6], "ranked row 1000000, expected a row of the index", id="a row beyond the index"
        ),
    ],
)
def test_rankings_of_a_package_that_do_not_fit_the_queries_are_an_error(
    order: list[int], rows: list[int], message: str, index: Index
) -> None:
    """Systems are fused by the place of a query, so that another order would fuse rankings of different queries."""

    class WrongSystem(System):
        lowest: ClassVar[float] = 0.0
        lane: ClassVar[str] = "cpu"
        kind: Literal["wrong"] = "wrong"

        def search(self, _opened: OpenIndex, queries: Sequence[Query], _within: Rows | None) -> Rankings:
            docs, scores = np.array(rows, dtype=np.int32), np.array([2.0, 1.0])
            return ranked([queries[i].id for i in order], [docs] * len(order), [scores] * len(order), self.depth)

    opened, queries = OpenIndex(index, open_store(index)), [query("bees"), query("ash", 2)]
    with pytest.raises(ValueError, match=f"system 'wrong': {message}"):
        search_systems({"a": WrongSystem()}, opened, queries, make_system("bm25"))


def test_only_one_thread_of_python_calls_java(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once can be given each other's objects: another ranking, or an error of Java, one time in many."""
    searcher, texts = LuceneSearcher(index.lucene), [text for _, text in CORPUS.values()]
    expected = searcher.search(texts, texts, 5)
    monkeypatch.setattr(threading.Thread, "start", lambda thread: pytest.fail(f"{thread} was started"))
    found = searcher.search(texts, texts, 5, threads=4)
    assert found.docs.tolist() == expected.docs.tolist()


def test_a_search_keeps_no_file_of_its_index_open(index: Index) -> None:
    store = open_store(index)
    held = weakref.ref(store)
    gc.disable()
    try:
        search_all(index, store, [query("ash")], depth=1)
        del store
        assert held() is None
    finally:
        gc.enable()


def test_dense_search_of_an_index_without_embeddings_is_an_error(tmp_path: Path) -> None:
    made, _ = build_index(write_corpus(tmp_path / "c.jsonl"), tmp_path / "index", BuildSettings(embedding=None))
    with pytest.raises(UserError, match="has no embeddings"):
        search_embeddings(made, [query("bees")], depth=5)


def test_an_index_is_built_by_one_process_at_a_time(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl")
    with lock_folder(tmp_path / ".index.partial"), pytest.raises(UserError, match="another process is writing here"):
        build_index(corpus, tmp_path / "index", BuildSettings(embedding=None))
    assert build_index(corpus, tmp_path / "index", BuildSettings(embedding=None))[1]


@pytest.mark.slow
def test_the_ranking_is_anserinis_rank_for_rank(tmp_path: Path) -> None:
    """On few words and many equal scores, with documents in the order of their ids and some of them empty."""
    random = np.random.default_rng(7)
    words = ["bee", "hive", "honey", "queen", "worker", "wasp", "ice"]
    documents = [Document(f"d{n:04d}", " ".join(random.choice(words, random.integers(0, 12)))) for n in range(600)]
    build_lucene(documents, tmp_path / "lucene")
    theirs = java_class("io.anserini.search.SimpleSearcher")(str(tmp_path / "lucene"))
    theirs.set_bm25(K1, B)
    texts = [" ".join(random.choice(words, random.integers(1, 5))) for _ in range(40)]
    for depth in (1, 10, 1000):
        ours = LuceneSearcher(tmp_path / "lucene").search(texts, texts, depth, threads=2)
        for i, text in enumerate(texts):
            assert [documents[row].id for row in ours.of(i)] == [hit.docid for hit in theirs.search(text, depth)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("honey " + "x" * 21_000_000, id="more than Anserini's JSON reader takes"),
        pytest.param("honey \0 bees", id="NUL"),
        pytest.param("\U0001f41d honey \U0001f36f", id="beyond the basic plane"),
        pytest.param("h\u00f6ney honey", id="accent"),
    ],
)
def test_any_text_is_indexed(text: str, tmp_path: Path) -> None:
    build_lucene([Document("a", "wax"), Document("b", text)], tmp_path / "lucene")
    searcher = LuceneSearcher(tmp_path / "lucene")
    assert searcher.search(["q", "r"], ["honey", text.split()[0]], 5).docs.tolist()[0] == 1


def test_an_index_is_built_once_and_never_replaced(tmp_path: Path) -> None:
    corpus, out = write_corpus(tmp_path / "c.jsonl"), tmp_path / "index"
    assert build_index(corpus, out, BuildSettings(embedding=None))[1]
    assert not build_index(corpus, out, BuildSettings(embedding=None))[1]
    corpus.write_text(corpus.read_text().replace("Honey", "Money"))
    with pytest.raises(UserError, match="another corpus or other settings"):
        build_index(corpus, out, BuildSettings(embedding=None))
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name]


@pytest.mark.parametrize("feedback", ["rm3", "rocchio"])
def test_feedback_finds_documents_that_share_words_only_with_the_first_hits(feedback: str, tmp_path: Path) -> None:
    fillers = [{"id": f"f{n}", "text": f"filler {n} other"} for n in range(40)]
    records = [
        {"id": "near", "text": "drones mate"},
        {"id": "start", "text": "queen drones drones"},
        {"id": "far", "text": "mate"},
    ]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(record) + "\n" for record in fillers + records))
    made, _ = build_index(tmp_path / "c.jsonl", tmp_path / "index", BuildSettings(embedding=None))
    plain = search_bm25(made, open_store(made), [query("queen")], depth=5)
    expanded = search_bm25(made, open_store(made), [query("queen"), query("", 2)], depth=5, feedback=feedback)
    assert found(made, plain) == ["start"]
    assert found(made, expanded) == ["start", "near"]
    assert len(expanded.of(1)) == 0


def test_rm3_is_half_the_query_and_half_the_relevance_model() -> None:
    """By hand: documents of 4 stems each, weighted 3 to 1."""
    documents = [{"hive": 3, "wax": 1}, {"wax": 4}]
    assert rm3({"bee": 1, "hive": 1}, documents, [3.0, 1.0]) == pytest.approx(
        {"bee": 0.25, "hive": 0.25 + 0.5 * 9 / 16, "wax": 0.5 * 7 / 16}
    )


def test_rocchio_adds_the_mean_of_unit_vectors() -> None:
    documents = [{"hive": 3, "wax": 4}, {"wax": 2}]
    assert rocchio({"bee": 3, "hive": 4}, documents, [9.0, 1.0]) == pytest.approx(
        {"bee": 0.6, "hive": 0.8 + 0.75 * 0.3, "wax": 0.75 * 0.9}
    )


@given(
    st.dictionaries(st.text("abc", min_size=2, max_size=3), st.integers(1, 9), max_size=5),
    st.lists(st.dictionaries(st.text("abcd", min_size=2, max_size=3), st.integers(1, 9), max_size=30), max_size=4),
    st.sampled_from([rm3, rocchio]),
)
def test_feedback_keeps_the_query_and_adds_at_most_ten_stems(
    asked: dict[str, float], documents: list[dict[str, float]], method: Feedback
) -> None:
    vector = method(asked, documents, [1.0] * len(documents))
    assert set(asked) <= set(vector)
    assert len(set(vector) - set(asked)) <= 10
    assert all(weight > 0 for weight in vector.values())


NOUNS = ["bee", "flower", "river", "glacier", "queen", "colony"]
TEXTS = st.lists(st.sampled_from(NOUNS), max_size=8).map(" ".join)


def score(text: str, segment: str, segments: list[str], k1: float, b: float) -> float:
    """The share of the highest possible score of BM25 for a text, by the definition."""
    mean = sum(len(one.split()) for one in segments) / len(segments) or 1
    found = most = 0.0
    for word in text.split():
        holding = sum(word in one.split() for one in segments)
        weight = math.log(1 + (len(segments) - holding + 0.5) / (holding + 0.5))
        count = segment.split().count(word)
        found += weight * count / (count + k1 * (1 - b + b * len(segment.split()) / mean)) if count else 0
        most += weight
    return found / most if most else 0.0


@given(
    st.lists(TEXTS, min_size=1, max_size=3),
    st.lists(st.lists(TEXTS, min_size=1, max_size=3), min_size=1, max_size=3),
    st.floats(0.1, 3),
    st.floats(0, 1),
)
def test_inner_products_are_scores_of_bm25(texts: list[str], documents: list[list[str]], k1: float, b: float) -> None:
    vectors, found = weigh_segments(texts, documents, k1, b)
    segments = [one for own in documents for one in own]
    wanted = [[score(text, one, segments, k1, b) for one in segments] for text in texts]
    products = vectors @ np.concatenate(found).T
    np.testing.assert_allclose(products, wanted, atol=0.01)
    backwards = vectors[:, ::-1] @ np.concatenate(found)[:, ::-1].T
    assert products.tolist() == backwards.tolist()


@given(TEXTS, TEXTS)
def test_vectors_of_words_compare_texts_by_their_words(one: str, other: str) -> None:
    vectors = embed_queries(WORDS, [one, other, f"The {one.upper()}, and so on"])
    assert (vectors[0] @ vectors[1] > 0.1) == bool(set(one.split()) & set(other.split()))
    assert vectors[0].tolist() == vectors[2].tolist()
    assert not one or vectors[0] @ vectors[0] > 0.97
