"""BM25 and dense search for the same batch of queries, at the same time."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from indexing.errors import UserError
from indexing.index import Index
from indexing.lucene.java import detach_thread
from indexing.types import Progress, Store, silent
from indexing.vectors.embed import embed_queries
from indexing.vectors.faiss_index import faiss_module
from indexing.vectors.of_documents import Texts, contents, document_vectors
from indexing.vectors.types import Effort
from retrieval.backends import Sparse, open_dense, open_sparse
from retrieval.feedback import DOCUMENTS, METHODS, serves
from retrieval.pool import pool_of, search_pool
from retrieval.types import Query, Rankings, Statistics


def search_bm25(
    index: Index,
    store: Store,
    queries: Sequence[Query],
    depth: int,
    threads: int = 1,
    progress: Progress = silent,
    feedback: str | None = None,
    statistics: Statistics = "global",
) -> Rankings:
    """The BM25 ranking of every query's `sparse_text`, expanded by a method of `retrieval.feedback` if one is named."""
    searcher = open_sparse(index, store, statistics)
    ids, texts = [query.id for query in queries], [query.sparse_text for query in queries]
    expanded: Sequence[str] | Sequence[Mapping[str, float]] = texts
    if feedback:
        with progress(f"BM25 search for {feedback}", len(queries)) as tick:
            first = searcher.search(ids, texts, DOCUMENTS, threads, tick)
        expanded = _expanded(store, searcher, texts, first, feedback)
    with progress("BM25 search", len(queries)) as tick:
        found = searcher.search(ids, expanded, depth, threads, tick)
    detach_thread()
    return found


def _expanded(
    store: Store, searcher: Sparse, texts: Sequence[str], first: Rankings, feedback: str
) -> list[dict[str, float]]:
    rows = np.unique(first.docs)
    counts = [Counter(searcher.stems(document.contents)) for document in store.get(rows)]
    stems = sorted(set().union(*counts))
    frequency = dict(zip(stems, searcher.stem_frequencies(stems), strict=True))
    serving = {stem for stem in stems if serves(stem, frequency[stem], len(store))}
    vectors = {
        row: {stem: count for stem, count in own.items() if stem in serving}
        for row, own in zip(rows.tolist(), counts, strict=True)
    }
    return [
        METHODS[feedback](
            Counter(searcher.stems(text)), [vectors[row] for row in first.of(i).tolist()], first.scores_of(i).tolist()
        )
        for i, text in enumerate(texts)
    ]


def search_embeddings(
    index: Index,
    queries: Sequence[Query],
    depth: int,
    threads: int = 1,
    progress: Progress = silent,
    faiss: str = "",
) -> Rankings:
    """The dense ranking of every query's `dense_text`. `UserError` where the index has no embeddings.

    `faiss` sets search parameters of an index that is not exact, such as `nprobe=16`.
    """
    if index.embedding is None:
        raise UserError(f"{index.folder}: has no embeddings: build it without --no-dense, or set retrieval.systems")
    with progress("Dense search", len(queries)) as tick:
        dense = open_dense(index, faiss)
        vectors = embed_queries(index.embedding, [query.dense_text for query in queries], threads, tick)
        if vectors.shape[1] != dense.dimension:
            raise UserError(
                f"{index.folder}: found vectors of {vectors.shape[1]} numbers from {index.embedding.model}, "
                f"expected {dense.dimension}: the model has changed: build the index again"
            )
        return dense.search([query.id for query in queries], vectors, depth, threads)


def search_candidates(
    index: Index,
    store: Store,
    queries: Sequence[Query],
    bm25: Rankings,
    depth: int,
    threads: int = 1,
    progress: Progress = silent,
    faiss: str = "",
    texts_of: Texts = contents,
) -> Rankings:
    """The dense ranking of every query's `dense_text` among the documents that `bm25` has for any query.

    `texts_of` says which text stands for a document, in place of title and text. `UserError` where the index has no
    embeddings, and for search parameters in `faiss`, as this search is exact.
    """
    if faiss:
        raise UserError(f"retrieval.faiss: found {faiss!r}, expected none: a candidate pool is searched exactly")
    pool = pool_of(bm25)
    vectors = document_vectors(index, store, pool.tolist(), texts_of, Effort(threads, progress))
    assert index.embedding is not None  # `document_vectors` has looked
    with progress("Dense search", len(queries)) as tick:
        asked = embed_queries(index.embedding, [query.dense_text for query in queries], threads, tick)
        faiss_module().omp_set_num_threads(threads)
        return search_pool(pool, vectors, [query.id for query in queries], asked, depth)


def search_all(
    index: Index,
    store: Store,
    queries: Sequence[Query],
    systems: Sequence[str],
    depth: int,
    threads: int = 1,
    progress: Progress = silent,
    feedback: str | None = None,
    faiss: str = "",
    texts_of: Texts = contents,
    statistics: Statistics = "global",
) -> dict[str, Rankings]:
    """One batch of rankings for each named system (`bm25`, `dense`), searched in parallel.

    An index without vectors of all documents is searched by BM25 first, for the pool of the dense search, which
    `texts_of` is for.
    """
    if index.pooled and "dense" in systems:
        bm25 = search_bm25(index, store, queries, depth, threads, progress, feedback, statistics)
        dense = search_candidates(index, store, queries, bm25, depth, threads, progress, faiss, texts_of)
        return {name: {"bm25": bm25, "dense": dense}[name] for name in systems}
    searches: dict[str, Callable[..., Rankings]] = {
        "bm25": partial(search_bm25, index, store, feedback=feedback, statistics=statistics),
        "dense": partial(search_embeddings, index, faiss=faiss),
    }
    with ThreadPoolExecutor(len(systems) or 1) as pool:
        jobs = {name: pool.submit(searches[name], queries, depth, threads, progress) for name in systems}
        return {name: job.result() for name, job in jobs.items()}
