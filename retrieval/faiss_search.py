"""Dense search: the inner product of query and document vectors, by FAISS. It also finds a document's neighbours.

A candidate pool (Keystone-Docs RAG, section 2.2) has the documents that another system finds for any query.

Passages stand for their document: the best one (MaxP; Dai and Callan, SIGIR 2019, section 3), or the mean of the best
few. The first passage (FirstP, the same section) may have a weight beside them.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.embedder import Vectors
from keystone.indexing.index import Index
from keystone.indexing.vectors.faiss_index import (
    bind_search,
    import_faiss,
    load_dense,
    make_faiss_index,
    search_shards,
)
from keystone.indexing.vectors.passages import Offsets, PassageIndex, open_passages
from keystone.retrieval.backends import Dense
from keystone.retrieval.ties import SPARE_HITS
from keystone.retrieval.types import PassageScore, Rankings, offsets_of, ranked

LEAST_QUERIES = 64
"""The fewest queries for which a separate thread is worth its cost."""


def rank_by_passages(
    passages: PassageIndex, query_ids: Sequence[str], queries: Vectors, depth: int, score: PassageScore
) -> Rankings:
    """Rank the top `depth` documents of each query vector (float32[queries, dimension]), exactly; ties by row.

    `score` combines the inner products of a document's passages. The FAISS indexes of the passages must be flat. Many
    queries are divided among as many threads as FAISS has. Each multiplies alone, so that none waits for another.
    """
    from keystone.retrieval.passage_loops import find_best

    faiss = import_faiss()
    threads = max(1, min(faiss.omp_get_max_threads(), len(queries) // LEAST_QUERIES))
    if threads == 1:
        found = find_best(passages, queries, depth, score)
    else:
        with ThreadPoolExecutor(threads, initializer=lambda: faiss.omp_set_num_threads(1)) as pool:
            parts = np.array_split(queries, threads)
            found = [
                one for own in pool.map(lambda part: find_best(passages, part, depth, score), parts) for one in own
            ]
    return ranked(query_ids, [docs for docs, _ in found], [scores for _, scores in found], depth)


def rank_by_found_passages(found: Rankings, offsets: Offsets, depth: int, score: PassageScore) -> Rankings:
    """Rank the top `depth` documents of the passages that each query has found; ties by row.

    `score` combines the scores of a document's passages. If a passage that it needs was not found, that passage counts
    like the last passage that the query found.
    """
    docs, scores = [], []
    for i in range(len(found)):
        passages, own = found.of(i), found.scores_of(i).astype(np.float64)
        rows, places, counts = np.unique(
            np.searchsorted(offsets, passages, side="right") - 1, return_inverse=True, return_counts=True
        )
        order = np.argsort(places, kind="stable")
        number = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        best = order[number < score.best]
        wanted = np.minimum(score.best, offsets[rows + 1] - offsets[rows])
        missing = wanted - np.bincount(places[best], minlength=len(rows))
        last = own[-1] if len(own) else 0.0
        means = (np.bincount(places[best], own[best], minlength=len(rows)) + missing * last) / wanted
        firsts = np.full(len(rows), last)
        found_first = passages == offsets[rows][places]
        firsts[places[found_first]] = own[found_first]
        docs.append(rows)
        scores.append(((1 - score.first_weight) * means + score.first_weight * firsts).astype(np.float32))
    return ranked(found.query_ids, docs, scores, depth)


PASSAGES_OF_A_HIT = 2
"""How many passages the first search of an inexact index asks for, for each one that counts in a wanted hit."""
FEW_PRODUCTS = 200_000
"""Up to this many inner products, FAISS orders all passages sooner than a process loads Numba."""


def open_dense(index: Index, parameters: str, score: PassageScore) -> Dense:
    """Open the FAISS index of an index folder. `UserError` if it is damaged, and for impossible parameters."""
    mapped = bool(index.dense_shards or index.parts)  # what stays open is mapped
    if index.passages:
        return PassageSearcher(open_passages(index, parameters, mapped), score)
    files, chosen = index.dense_files, index.chosen_parameters
    return index.take(("dense", index.set_name, parameters), lambda: FaissSearcher(files, parameters, chosen, mapped))


class FaissSearcher:
    """Dense search of the FAISS index that `build_dense` or `build_dense_shards` made.

    `files` are those of the index in the order of rows, which stay on disk if `mapped`. For an inexact index,
    `parameters` such as `nprobe=16` take precedence over those that its build has `chosen`.
    """

    def __init__(self, files: Sequence[Path], parameters: str = "", chosen: str = "", mapped: bool = False) -> None:
        self._parts = [load_dense(file, parameters, mapped, chosen) for file in files]

    @property
    def dimension(self) -> int:
        """The number of entries in a vector."""
        return int(self._parts[0].d)

    def search(self, query_ids: Sequence[str], queries: Vectors, depth: int, threads: int = 1) -> Rankings:
        """Rank the top `depth` documents of each query vector (float32[queries, dimension]); ties by document id."""
        import_faiss().omp_set_num_threads(threads)
        return search_dense(self._parts, query_ids, queries, depth)


class PassageSearcher:
    """Dense search of documents by their passages, whose inner products `score` combines."""

    def __init__(self, passages: PassageIndex, score: PassageScore) -> None:
        self._passages, self._score = passages, score

    @property
    def dimension(self) -> int:
        """The number of entries in a vector."""
        return self._passages.dimension

    def search(self, query_ids: Sequence[str], queries: Vectors, depth: int, threads: int = 1) -> Rankings:
        """Rank the top `depth` documents of each query vector (float32[queries, dimension]); ties by document id.

        The search is exact if the FAISS index is `Flat`. From another index, it takes more and more passages until
        they belong to `depth` documents. A passage that is not among them counts like the last one.
        """
        import_faiss().omp_set_num_threads(threads)
        passages, score = self._passages, self._score
        wanted = PASSAGES_OF_A_HIT * (score.best + (score.first_weight > 0)) * depth
        if passages.is_flat:
            if "numba" in sys.modules or not 0 < len(queries) * len(passages) <= FEW_PRODUCTS:
                return rank_by_passages(passages, query_ids, queries, depth, score)
            wanted = len(passages)
        while True:
            found = search_dense(passages.parts, query_ids, queries, wanted)
            ranking = rank_by_found_passages(found, passages.offsets, depth, score)
            whole = (np.diff(ranking.offsets) == depth) | (np.diff(found.offsets) < min(wanted, len(passages)))
            if wanted >= len(passages) or whole.all():
                return ranking
            wanted *= 2


def search_dense(index: Any | Sequence[Any], query_ids: Sequence[str], queries: Vectors, depth: int) -> Rankings:
    """Rank the top `depth` documents of each query vector (float32[queries, dimension]); ties by document id.

    `index` is a FAISS index, or several FAISS indexes that hold consecutive ranges of rows. FAISS keeps arbitrary
    documents among those that tie at its last place. The function therefore fetches more until it cuts no tie. If an
    inexact index finds fewer documents, its rankings are shorter.
    """
    parts = index if isinstance(index, Sequence) else [index]
    search = bind_search(parts[0]) if len(parts) == 1 else partial(search_shards, parts)
    total = sum(part.ntotal for part in parts)
    wanted, left = min(depth + SPARE_HITS, total), np.arange(len(query_ids))
    docs, scores = [np.empty(0, np.int64)] * len(left), [np.empty(0, np.float32)] * len(left)
    while len(left):  # only queries with a cut tie search deeper, so that no query depends on those beside it
        found_scores, found = search(queries[left], wanted)
        whole = (found[:, -1] < 0) | (found_scores[:, -1] < found_scores[:, min(depth, wanted) - 1])
        whole |= wanted == total
        for place in np.flatnonzero(whole).tolist():
            count = int(np.count_nonzero(found[place] >= 0))
            docs[left[place]], scores[left[place]] = found[place, :count], found_scores[place, :count]
        left, wanted = left[~whole], min(2 * wanted, total)
    return ranked(query_ids, docs, scores, depth)


def search_pool(
    pool: NDArray[np.int32], vectors: Vectors, query_ids: Sequence[str], queries: Vectors, depth: int
) -> Rankings:
    """Rank the top `depth` documents of the pool for each query vector, exactly; ties by document id.

    `pool` int32[documents] holds ascending rows, `vectors` float32[documents, dimension] the embeddings beside them,
    and `queries` float32[queries, dimension] the query vectors.
    """
    if not len(pool):
        counts = np.zeros(len(query_ids), dtype=np.int64)
        return Rankings(tuple(query_ids), offsets_of(counts), pool, np.empty(0, np.float32))
    index = make_faiss_index(vectors.shape[1], "Flat")
    index.add(vectors)
    found = search_dense(index, query_ids, queries, depth)
    return replace(found, docs=pool[found.docs])


def find_neighbours(
    dense: Dense, rows: Sequence[int], vectors: Vectors, number: int, threads: int = 1
) -> list[list[int]]:
    """Find the `number` nearest documents of each of `rows`, without the document itself, the nearest first.

    `dense` is the search that `keystone.retrieval.backends.open_dense` opened. `vectors` holds the embedding of each
    row, float32[rows, d]. Ties go to the smaller row.
    """
    found = dense.search([str(row) for row in rows], vectors, number + 1, threads)
    return [[other for other in found.of(i).tolist() if other != row][:number] for i, row in enumerate(rows)]
