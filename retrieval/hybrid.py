"""BM25 and dense search for the same batch of queries, at the same time."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from indexing.build import Index
from indexing.dense import faiss_module, load_dense
from indexing.embed import embedder
from indexing.errors import UserError
from indexing.types import Progress, silent
from retrieval.dense import search_dense
from retrieval.lucene import LuceneSearcher
from retrieval.types import Query, Rankings


def search_bm25(
    index: Index, queries: Sequence[Query], depth: int, threads: int = 1, progress: Progress = silent
) -> Rankings:
    """The BM25 ranking of every query's `sparse_text`."""
    with progress("BM25 search", len(queries)) as tick:
        searcher = LuceneSearcher(index.lucene)
        ids, texts = [query.id for query in queries], [query.sparse_text for query in queries]
        return searcher.search(ids, texts, depth, threads, tick)


def search_embeddings(
    index: Index, queries: Sequence[Query], depth: int, threads: int = 1, progress: Progress = silent
) -> Rankings:
    """The dense ranking of every query's `dense_text`. `UserError` where the index has no embeddings."""
    if index.embedding is None:
        raise UserError(f"{index.folder}: has no embeddings: build it without --no-dense, or set retrieval.systems")
    with progress("Dense search", len(queries)) as tick:
        vectors = embedder(index.embedding).embed([query.dense_text for query in queries], threads, tick)
        faiss_module().omp_set_num_threads(threads)
        return search_dense(load_dense(index.dense), [query.id for query in queries], vectors, depth)


SYSTEMS = {"bm25": search_bm25, "dense": search_embeddings}
"""The searches by name, each with the same signature."""


def search_all(
    index: Index,
    queries: Sequence[Query],
    systems: Sequence[str],
    depth: int,
    threads: int = 1,
    progress: Progress = silent,
) -> dict[str, Rankings]:
    """One batch of rankings for each named system, searched in parallel."""
    with ThreadPoolExecutor(len(systems) or 1) as pool:
        jobs = {name: pool.submit(SYSTEMS[name], index, queries, depth, threads, progress) for name in systems}
        return {name: job.result() for name, job in jobs.items()}
