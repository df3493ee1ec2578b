"""Documents by their passages: the best one (MaxP; Dai and Callan, SIGIR 2019, section 3), or the mean of the best few.

The first passage (FirstP, the same section) may have a weight beside them.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keystone.indexing.vectors.faiss_index import import_faiss
from keystone.indexing.vectors.passages import Offsets, PassageIndex
from keystone.indexing.vectors.types import Vectors
from keystone.retrieval.types import PassageScore, Rankings, ranked

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
