"""The searches of an index: BM25 and dense search of one batch of queries and of their passages, in parallel."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.lucene.java import detach_thread
from keystone.indexing.types import Progress, Store, silent
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.vectors.faiss_index import import_faiss
from keystone.indexing.vectors.of_documents import document_vectors, join_title_and_text
from keystone.indexing.vectors.of_segments import segment_vectors
from keystone.indexing.vectors.passages import hold_passages
from keystone.indexing.vectors.types import Effort
from keystone.retrieval.backends import Sparse, open_dense, open_sparse
from keystone.retrieval.feedback import FEEDBACK_DOCUMENTS, METHODS, serves
from keystone.retrieval.passages import rank_by_passages
from keystone.retrieval.pool import Candidates, pool_of, search_pool
from keystone.retrieval.types import Query, Rankings, SearchSettings, System, offsets_of

QUESTION_REPEATS = 5
"""How often `query2doc` repeats the question before the passage (Query2Doc, section 3)."""
_ENGINES: Mapping[System, str] = {"bm25": "sparse", "query2doc": "sparse", "dense": "dense", "hyde": "dense"}


def search_bm25(
    index: Index, store: Store, queries: Sequence[Query], settings: SearchSettings, progress: Progress = silent
) -> Rankings:
    """Rank documents for each query's `sparse_text` by BM25, `settings.depth` deep.

    If `settings.feedback` names a method of `retrieval.feedback`, a first search expands the queries. `UserError`
    from the engine, and for feedback that it does not support.
    """
    searcher = open_sparse(index, store, settings.bm25)
    ids, texts = [query.id for query in queries], [query.sparse_text for query in queries]
    expanded: Sequence[str] | Sequence[Mapping[str, float]] = texts
    if settings.feedback:
        with progress(f"BM25 search for {settings.feedback}", len(queries)) as tick:
            first = searcher.search(ids, texts, FEEDBACK_DOCUMENTS, settings.threads, tick)
        expanded = _expand_queries(store, searcher, texts, first, settings.feedback)
    with progress("BM25 search", len(queries)) as tick:
        found = searcher.search(ids, expanded, settings.depth, settings.threads, tick)
    detach_thread()
    return found


def _expand_queries(
    store: Store, searcher: Sparse, texts: Sequence[str], first: Rankings, feedback: str
) -> list[dict[str, float]]:
    """Expand each query text into weighted stems, by the documents that it found first."""
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
    index: Index, queries: Sequence[Query], settings: SearchSettings, progress: Progress = silent
) -> Rankings:
    """Rank documents for each query's `dense_text` by the inner product of embeddings, `settings.depth` deep.

    If the index has no embeddings, or if the embedding model's vectors have changed their length, the function raises
    `UserError`. It also raises `UserError` for search parameters that the index does not support.
    """
    if index.embedding is None:
        raise UserError(
            f"{index.folder}: has no embeddings for dense search: expected retrieval.systems [bm25] and no "
            "queries.passages hyde, or an index that is built without --no-dense"
        )
    with progress("Dense search", len(queries)) as tick:
        dense = open_dense(index, settings.faiss, settings.passages)
        vectors = embed_queries(index.embedding, [query.dense_text for query in queries], settings.threads, tick)
        if vectors.shape[1] != dense.dimension:
            raise UserError(
                f"{index.folder}: found vectors of {vectors.shape[1]} numbers from {index.embedding.model}, "
                f"expected {dense.dimension}: the model has changed: build the index again"
            )
        return dense.search([query.id for query in queries], vectors, settings.depth, settings.threads)


def search_candidates(
    index: Index,
    candidates: Candidates,
    queries: Sequence[Query],
    settings: SearchSettings,
    progress: Progress = silent,
) -> Rankings:
    """Rank the candidates for each query's `dense_text` by the inner product of embeddings, exactly.

    If the index is one of passages, the segments of the candidates are embedded instead of title and text.

    `UserError` if the index has no embedding model, and for search parameters in `settings.faiss`.
    """
    if settings.faiss:
        raise UserError(
            f"retrieval.faiss: found {settings.faiss!r}, expected none: a candidate pool is searched exactly"
        )
    rows, ids = candidates.rows, [query.id for query in queries]
    if index.passages:
        segments = segment_vectors(index, candidates.store, rows.tolist(), settings.threads, progress)
    else:
        effort = Effort(settings.threads, progress)
        vectors = document_vectors(index, candidates.store, rows.tolist(), candidates.texts_of, effort)
    assert index.embedding is not None  # both have checked
    with progress("Dense search", len(queries)) as tick:
        asked = embed_queries(index.embedding, [query.dense_text for query in queries], settings.threads, tick)
        import_faiss().omp_set_num_threads(settings.threads)
        if not index.passages:
            return search_pool(rows, vectors, ids, asked, settings.depth)
        passages = hold_passages((segments[row] for row in rows.tolist()), asked.shape[1])
        found = rank_by_passages(passages, ids, asked, settings.depth, settings.passages)
        return replace(found, docs=rows[found.docs])


def search_all(
    index: Index,
    store: Store,
    queries: Sequence[Query],
    settings: SearchSettings,
    progress: Progress = silent,
) -> dict[System, Rankings]:
    """Search a batch of queries with each system of `settings.systems`; the result is keyed by system.

    BM25 and dense search run in parallel. A query without a passage finds nothing by `hyde` and `query2doc`.
    If the index has no vectors of all documents, Keystone searches BM25 first. The dense search then ranks the
    documents that BM25 found for any query.
    `store` is the one of `open_store(index)`. `UserError` as from `search_bm25` and the dense searches.
    """
    known: dict[System, Rankings] = {}
    search: dict[str, Callable[..., Rankings]] = {
        "sparse": partial(search_bm25, index, store),
        "dense": partial(search_embeddings, index),
    }
    engines = {_ENGINES[system] for system in settings.systems}
    if index.pooled and "dense" in engines:
        known["bm25"] = search_bm25(index, store, queries, settings, progress)
        candidates = Candidates(store, pool_of(known["bm25"]), settings.texts_of or join_title_and_text)
        search["dense"] = partial(search_candidates, index, candidates)

    def search_system(system: System, ask: Callable[..., Rankings]) -> Rankings:
        if system in ("bm25", "dense"):
            return ask(queries, settings, progress)
        places = [place for place, query in enumerate(queries) if query.passage]
        found = ask([ask_by_passage(queries[place]) for place in places], settings, progress)
        counts = np.zeros(len(queries), dtype=np.int64)
        counts[places] = np.diff(found.offsets)
        return Rankings(tuple(query.id for query in queries), offsets_of(counts), found.docs, found.scores)

    def search_in_turn(engine: str) -> dict[System, Rankings]:
        return {
            system: known[system] if system in known else search_system(system, search[engine])
            for system in settings.systems
            if _ENGINES[system] == engine
        }

    with ThreadPoolExecutor(len(engines) or 1) as pool:
        found = {system: rankings for own in pool.map(search_in_turn, engines) for system, rankings in own.items()}
    return {system: found[system] for system in settings.systems}


def ask_by_passage(query: Query) -> Query:
    """Make the query that `hyde` and `query2doc` search for."""
    texts = [query.question] * QUESTION_REPEATS + [query.passage]
    return replace(query, sparse_text=" ".join(texts), dense_text=query.passage)
