"""Dense search in a candidate pool: the result of the whole index, restricted to the documents that BM25 found."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.embedder import round_to_grid
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.store import DocumentStore
from keystone.indexing.types import Document, Embedding
from keystone.indexing.vectors.of_documents import document_vectors, join_title_and_text
from keystone.retrieval.backends import open_store
from keystone.retrieval.faiss_search import search_pool
from keystone.retrieval.types import Query, Rankings
from tests.support.indexes.searches import search_all, search_embeddings
from tests.support.indexes.small_corpus import write_corpus
from tests.support.runs.command_line import keystone
from tests.support.runs.pools import check_pool_restricts

QUERIES = [
    Query("1", f"1-{n}", text, text, text)
    for n, text in enumerate(["honey in the kitchen", "ash of a volcano", "zzyzx"])
]


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("pooled")
    return build_index(write_corpus(folder / "corpus.jsonl"), folder / "index", BuildSettings(faiss=None))[0]


def restricted(whole: Rankings, pool: Sequence[int], depth: int) -> list[list[tuple[int, float]]]:
    """The first hits of each query that are in the pool."""
    hits = [zip(whole.of(i).tolist(), whole.scores_of(i).tolist(), strict=True) for i in range(len(whole))]
    return [[(doc, score) for doc, score in own if doc in set(pool)][:depth] for own in hits]


@pytest.mark.parametrize(("depth", "systems"), [(2, ["bm25", "dense"]), (3, ["dense", "bm25"]), (100, ["dense"])])
def test_the_pool_ranks_as_the_whole_index_restricted_to_it(
    index: Index, pooled: Index, depth: int, systems: list[str]
) -> None:
    found = search_all(pooled, open_store(pooled), QUERIES, systems, depth)
    assert list(found) == systems
    bm25 = search_all(index, open_store(index), QUERIES, systems=["bm25"], depth=depth)["bm25"]
    expected = restricted(search_embeddings(index, QUERIES, depth=100), bm25.docs.tolist(), depth)
    assert restricted(found["dense"], range(100), 100) == expected
    assert 0 < len(np.unique(bm25.docs)) < (index.documents or 0)
    assert not pooled.dense.exists()


def test_passages_rank_the_documents_that_queries_find_by_bm25(pooled: Index) -> None:
    queries = [replace(QUERIES[0], passage="Lava and ash."), QUERIES[1]]
    found = search_all(pooled, open_store(pooled), queries, ["bm25", "hyde", "query2doc"], 100)
    assert sorted(found["hyde"].of(0)) == np.unique(found["bm25"].docs).tolist()
    assert not len(found["hyde"].of(1))
    assert not len(found["query2doc"].of(1))


@given(
    st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3).filter(any), max_size=12),
    st.sets(st.integers(0, 11)),
    st.integers(1, 5),
)
def test_a_pool_is_searched_exactly_with_ties_by_row(vectors: list[list[int]], some: set[int], depth: int) -> None:
    pool = np.array(sorted(row for row in some if row < len(vectors)), dtype=np.int32)
    documents = round_to_grid(np.array([vectors[row] for row in pool.tolist()], dtype=np.float64).reshape(-1, 3))
    queries = round_to_grid(np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    found = search_pool(pool, documents, ["a", "b"], queries, depth)
    for i in range(2):
        scores = (documents @ queries[i]).tolist()
        expected = sorted(zip(pool.tolist(), scores, strict=True), key=lambda hit: (-hit[1], hit[0]))[:depth]
        assert list(zip(found.of(i).tolist(), found.scores_of(i).tolist(), strict=True)) == expected


def test_vectors_are_made_once_for_a_text(pooled: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded: list[str] = []
    embed = document_vectors.__globals__["embed_passages"]

    def counting(embedding: Embedding, texts: Sequence[str], *more: object) -> object:
        embedded.extend(texts)
        return embed(embedding, texts, *more)

    monkeypatch.setattr("keystone.indexing.vectors.of_documents.embed_passages", counting)
    (pooled.folder / "documents.sqlite").unlink(missing_ok=True)
    first = document_vectors(pooled, open_store(pooled), [0, 3, 5])
    again = document_vectors(pooled, open_store(pooled), [5, 1, 0])
    assert embedded == join_title_and_text(DocumentStore(pooled.store).get([0, 3, 5, 1]))
    assert np.array_equal(first[[2, 0]], again[[0, 2]])

    def short(documents: Sequence[Document]) -> list[str]:
        return [document.title for document in documents]

    assert not np.array_equal(document_vectors(pooled, open_store(pooled), [0], short), first[:1])
    assert np.array_equal(document_vectors(pooled, open_store(pooled), [0]), first[:1])


def test_a_summary_can_be_embedded_for_a_document(pooled: Index) -> None:
    def honey(documents: Sequence[Document]) -> list[str]:
        return ["honey in the kitchen" if document.id == "volcano" else "x" for document in documents]

    dense = search_all(pooled, open_store(pooled), QUERIES, ["dense"], 5, texts_of=honey)["dense"]
    assert DocumentStore(pooled.store).ids(dense.of(0))[0] == "volcano"


def test_a_setting_that_a_pool_cannot_serve_is_an_error(tmp_path: Path, pooled: Index) -> None:
    with pytest.raises(UserError, match=r"retrieval\.faiss: found 'nprobe=2', expected none"):
        search_all(pooled, open_store(pooled), QUERIES, depth=5, faiss="nprobe=2")
    corpus, unknown = write_corpus(tmp_path / "c.jsonl"), BuildSettings(embedding=Embedding("unknown"), faiss=None)
    with pytest.raises(UserError, match="expected all-MiniLM-L6-v2"):
        build_index(corpus, tmp_path / "other", unknown)


@pytest.mark.slow
def test_a_run_over_a_pool_is_whole(tmp_path: Path) -> None:
    check_pool_restricts(tmp_path, "all", "pool")
    assert keystone("index", tmp_path / "corpus.jsonl", "--out", tmp_path / "pool", "--no-dense", "-q").returncode == 1
    assert keystone("index", tmp_path / "corpus.jsonl", "--out", tmp_path / "x", "--dense", "some").returncode == 2
