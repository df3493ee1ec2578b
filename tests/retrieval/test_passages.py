"""Documents by their passages: the ranking of a plain twin over all inner products, on any division into files."""

import json
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.embedder import Vectors, round_to_grid
from keystone.indexing.errors import UserError
from keystone.indexing.index import shard_files
from keystone.indexing.types import MINILM
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.vectors.faiss_index import load_dense_shards, make_faiss_index, write_dense
from keystone.indexing.vectors.of_segments import segment_vectors
from keystone.indexing.vectors.passages import PassageIndex
from keystone.retrieval.backends import open_store
from keystone.retrieval.faiss_search import PassageSearcher, rank_by_found_passages, rank_by_passages, search_dense
from keystone.retrieval.passage_loops import BLOCK_PASSAGES
from keystone.retrieval.types import PassageScore, Query, Rankings, offsets_of
from tests.support.indexes.clustered_vectors import make_clustered_vectors
from tests.support.indexes.searches import search_embeddings
from tests.support.indexes.small_corpus import write_corpus
from tests.support.runs.command_line import keystone_here
from tests.support.runs.pools import check_pool_restricts

Hits = list[list[tuple[int, float]]]


def rank_plainly(vectors: Vectors, counts: Sequence[int], queries: Vectors, depth: int, score: PassageScore) -> Hits:
    """The twin: all inner products, the mean of the best of each document, and its first."""
    products = np.split(queries @ vectors.T, np.cumsum(counts)[:-1], axis=1)
    rows = [row for row, count in enumerate(counts) if count]
    scores = {}
    for row in rows:
        own = products[row].astype(np.float64)
        means = np.sort(own, axis=1)[:, -score.best :].mean(1)
        scores[row] = ((1 - score.first_weight) * means + score.first_weight * own[:, 0]).astype(np.float32)
    return [
        sorted(((row, float(scores[row][q])) for row in rows), key=lambda hit: (-hit[1], hit[0]))[:depth]
        for q in range(len(queries))
    ]


def hits_of(rankings: Rankings) -> Hits:
    return [
        list(zip(rankings.of(i).tolist(), rankings.scores_of(i).tolist(), strict=True)) for i in range(len(rankings))
    ]


def index_of(vectors: Vectors, counts: Sequence[int], sizes: Sequence[int], factory: str = "Flat") -> PassageIndex:
    """The passages in FAISS indexes of these sizes, and the rest in one more."""
    parts = []
    for own in np.split(vectors, np.cumsum(sizes)):
        part = make_faiss_index(vectors.shape[1], factory)
        part.add(np.ascontiguousarray(own))
        parts.append(part)
    return PassageIndex(parts, offsets_of(counts))


@given(
    st.lists(st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3).filter(any), max_size=5), min_size=1),
    st.integers(0, 9),
    st.integers(1, 6),
    st.builds(PassageScore, st.integers(1, 4), st.sampled_from([0, 0.3, 0.5, 1])),
)
def test_documents_rank_by_their_passages_with_ties_by_row(
    documents: list[list[list[int]]], size: int, depth: int, score: PassageScore
) -> None:
    counts = list(map(len, documents))
    numbers = [vector for document in documents for vector in document]
    vectors = round_to_grid(np.array(numbers, dtype=np.float64).reshape(-1, 3))
    queries = round_to_grid(np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    searcher = PassageSearcher(index_of(vectors, counts, [min(size, len(vectors))]), score)
    expected = rank_plainly(vectors, counts, queries, depth, score)
    assert hits_of(searcher.search(["a", "b"], queries, depth)) == expected
    with patch.dict(sys.modules):  # it would drop the parts of numba that the first search has imported
        del sys.modules["numba"]
        assert hits_of(searcher.search(["a", "b"], queries, depth)) == expected


@pytest.fixture(scope="module")
def many() -> tuple[Vectors, list[int]]:
    """Passages of 700 documents, one of which is longer than two blocks."""
    counts = np.random.default_rng(3).integers(0, 12, 700)
    counts[[5, 311]] = 2 * BLOCK_PASSAGES + 52, 1
    return make_clustered_vectors(int(counts.sum()), 1), counts.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("score", [PassageScore(1), PassageScore(3, 0.5)])
@pytest.mark.parametrize("depth", [1, 50, 600, 2_000])
def test_blocks_of_documents_and_queries_change_no_ranking(
    many: tuple[Vectors, list[int]], depth: int, score: PassageScore
) -> None:
    vectors, counts = many
    queries = make_clustered_vectors(600, 2)
    expected = rank_plainly(vectors, counts, queries, depth, score)
    names = [str(i) for i in range(len(queries))]
    for sizes in ([], [700, 1, 2_900]):
        searcher = PassageSearcher(index_of(vectors, counts, sizes), score)
        assert hits_of(searcher.search(names, queries, depth)) == expected


def test_memory_never_holds_the_products_of_all_passages() -> None:
    vectors, queries = make_clustered_vectors(40_000, 1), make_clustered_vectors(500, 2)
    passages, names = index_of(vectors, [4] * 10_000, []), [str(i) for i in range(500)]
    rank_by_passages(passages, names[:1], queries[:1], 10, PassageScore(5))  # compiles
    tracemalloc.start()
    try:
        rank_by_passages(passages, names, queries, 10, PassageScore(5))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(vectors) * len(queries) / 4


def test_mapped_files_are_searched_like_memory(tmp_path: Path, many: tuple[Vectors, list[int]]) -> None:
    vectors, counts = many
    files = shard_files(tmp_path, 3)
    for part, file in zip(index_of(vectors, counts, [1_000, 1_001]).parts, files, strict=True):
        write_dense(part, file)
    mapped = PassageSearcher(PassageIndex(load_dense_shards(files), offsets_of(counts)), PassageScore(2))
    queries = make_clustered_vectors(5, 2)
    assert hits_of(mapped.search(list("abcde"), queries, 40)) == rank_plainly(
        vectors, counts, queries, 40, PassageScore(2)
    )


def test_a_graph_finds_nearly_all_documents(many: tuple[Vectors, list[int]]) -> None:
    vectors, counts = many
    queries = make_clustered_vectors(20, 2)
    searcher = PassageSearcher(index_of(vectors, counts, [2_000], "HNSW32"), PassageScore(1))
    found = searcher.search([str(i) for i in range(20)], queries, 10)
    exact = rank_plainly(vectors, counts, queries, 10, PassageScore(1))
    same = sum(len({doc for doc, _ in own} & set(found.of(i).tolist())) for i, own in enumerate(exact))
    assert same >= 180


def test_a_passage_that_was_not_found_counts_like_the_last_one() -> None:
    vectors = round_to_grid(np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.8, 0.3]]))
    query = round_to_grid(np.array([[1.0, 0.0]]))
    found = search_dense(index_of(vectors, [4], []).parts, ["q"], query, 3)
    one, _, third, last = (vectors @ query[0]).tolist()
    half = 0.5 * (third + last) / 2
    for offsets, score, scores in (
        ([2, 2], PassageScore(1), {0: one, 1: third}),
        ([2, 2], PassageScore(2), {0: (one + last) / 2, 1: (third + last) / 2}),
        ([1, 3], PassageScore(2, 0.5), {0: one, 1: half + 0.5 * last}),
    ):
        ranking = rank_by_found_passages(found, offsets_of(offsets), 2, score)
        assert dict(hits_of(ranking)[0]) == {row: float(np.float32(score)) for row, score in scores.items()}


@pytest.mark.slow
def test_the_closest_segment_is_read_and_never_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(f"Bees of hive {n} carry pollen to the {n} flowers of field {n}." for n in range(23))
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    with corpus.open("a") as file:
        file.write(json.dumps({"_id": "hives", "title": "Hives", "text": text}) + "\n")
    made = {
        size: build_index(corpus, tmp_path / str(size), BuildSettings(passages=True, faiss_shard=size))[0]
        for size in (None, 5)
    }
    plain, _ = build_index(corpus, tmp_path / "plain", BuildSettings(faiss=None))
    rows = list(range(plain.documents or 0))
    expected = segment_vectors(plain, open_store(plain), rows)
    assert len(expected[4]) == 4, "the hives are cut into four windows"
    counts = [len(expected[row]) for row in rows]
    queries = [Query("1", str(n), "", "", text) for n, text in enumerate(["pollen of hive 21", "twins and sugar"])]
    asked = embed_queries(MINILM, [query.dense_text for query in queries])
    vectors = np.concatenate([expected[row] for row in rows])
    for passages in made.values():
        with monkeypatch.context() as patch:
            patch.delattr("keystone.indexing.vectors.of_segments.embed_passages")
            found = segment_vectors(passages, open_store(passages), [7, 4, 4, 0])
        assert sorted(found) == [0, 4, 7]
        assert all(np.array_equal(found[row], expected[row]) for row in found)
        for score in (PassageScore(1), PassageScore(2, 0.5)):
            ranking = search_embeddings(passages, queries, depth=4, passages=score)
            assert hits_of(ranking) == rank_plainly(vectors, counts, asked, 4, score)
    assert (made[None].passages, made[None].faiss_shards, made[5].faiss_shards) == (True, 0, 3)
    with pytest.raises(UserError, match="other settings"):
        build_index(corpus, made[None].folder)
    made[None].offsets.write_bytes(b"")
    with pytest.raises(UserError, match=r"passages\.npy: damaged: build the index again"):
        search_embeddings(made[None], queries, depth=4)


@pytest.mark.slow
def test_a_pool_of_passages_ranks_as_all_passages_restricted_to_it(tmp_path: Path) -> None:
    check_pool_restricts(tmp_path, "passages", "pool-passages")


@pytest.mark.parametrize(
    ("corpus", "options", "why"),
    [
        (
            "corpus.jsonl",
            ["--opensearch", "http://127.0.0.1:1/x", "--faiss", "HNSW32"],
            "--faiss 'HNSW32': OpenSearch searches passages exactly; expected Flat",
        ),
        ("rest:http://127.0.0.1:1/x", [], "found --dense passages with rest:"),
    ],
)
def test_an_engine_without_passages_refuses_them(tmp_path: Path, corpus: str, options: list[str], why: str) -> None:
    write_corpus(tmp_path / "corpus.jsonl")
    given = corpus if corpus.startswith("rest:") else str(tmp_path / corpus)
    made = keystone_here("index", given, "--out", tmp_path / "index", "--dense", "passages", *options)
    assert (made.returncode, why in " ".join(made.stderr.split())) == (1, True), made.stderr
