"""Documents by their passages: the best one (MaxP; Dai and Callan, SIGIR 2019, section 3), or the mean of the best few.

The first passage (FirstP, the same section) may have a weight beside them.

In the exact search, blocks of passages pass by the queries, and each block has whole documents. A kernel keeps the best
documents of each query so far. So memory holds the inner products of one block, and never those of all passages.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexing.vectors.faiss_index import bind_products
from indexing.vectors.passages import Offsets, PassageIndex
from indexing.vectors.types import Vectors
from retrieval.types import PassageScore, Rankings, ranked

BLOCK_PASSAGES = 1_024
"""The maximum number of passages in a block, unless a single document has more."""
BLOCK_QUERIES = 512
"""The maximum number of queries in a block. Its inner products take two megabytes, which a core's cache holds."""


class _Kept(NamedTuple):
    """The best documents of each query so far, by row, with room for twice the wanted number."""

    docs: NDArray[np.int32]
    """int32[queries, 2 * wanted]"""
    scores: NDArray[np.float32]
    """float32[queries, 2 * wanted], beside `docs`"""
    counts: NDArray[np.int64]
    """The number of documents of each query: int64[queries]"""
    least: NDArray[np.float32]
    """A score that a further document must exceed: float32[queries]"""


def rank_by_passages(
    passages: PassageIndex, query_ids: Sequence[str], queries: Vectors, depth: int, score: PassageScore
) -> Rankings:
    """Rank the top `depth` documents of each query vector (float32[queries, dimension]), exactly; ties by row.

    `score` combines the inner products of a document's passages. The FAISS indexes of the passages must be flat.
    """
    shape = (len(queries), 2 * min(depth, len(passages.offsets) - 1))
    least = np.full(len(queries), -np.inf, np.float32)
    kept = _Kept(np.empty(shape, np.int32), np.empty(shape, np.float32), np.zeros(len(queries), np.int64), least)
    groups = [slice(start, start + BLOCK_QUERIES) for start in range(0, len(queries), BLOCK_QUERIES)]
    multiply = [bind_products(queries[group]) for group in groups]
    for first, last in _find_blocks(passages.offsets):
        vectors, ends = passages.view(first, last), passages.offsets[first : last + 1] - passages.offsets[first]
        for group, products in zip(groups, multiply, strict=True):
            _keep_best(products(vectors), ends, first, score, _Kept._make(column[group] for column in kept))
    _sort(kept)
    rows = [slice(0, count) for count in kept.counts.tolist()]
    docs, scores = ([own[row] for own, row in zip(column, rows, strict=True)] for column in kept[:2])
    return ranked(query_ids, docs, scores, depth)


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


def _find_blocks(offsets: Offsets) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges of documents with at most `BLOCK_PASSAGES` passages, or of a single document."""
    first, documents = 0, len(offsets) - 1
    while first < documents:
        last = int(np.searchsorted(offsets, offsets[first] + BLOCK_PASSAGES, side="right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _keep_best(products: Vectors, ends: Offsets, first: int, score: PassageScore, kept: _Kept) -> None:
    """Offer the documents of a block, from row `first`, to each query: `products` float32[passages, queries].

    `ends` int64[documents + 1] are the offsets of passages in the block.
    """
    queries, wanted = products.shape[1], kept.docs.shape[1] // 2
    top, value = np.empty((score.best, queries), np.float32), np.empty(queries, np.float32)
    total, combined = np.empty(queries, np.float64), np.empty(queries, np.float32)
    for d in range(len(ends) - 1):
        held = min(score.best, ends[d + 1] - ends[d])
        if not held:
            continue
        beginning = products[ends[d]]
        top[0] = beginning
        top[1:held] = -np.inf
        for p in range(ends[d] + 1, ends[d + 1]):
            _insert(products[p], top[:held], value)
        total[:] = top[0]
        for place in range(1, held):
            total += top[place]
        for q in range(queries):
            combined[q] = (1 - score.first_weight) * (total[q] / held) + score.first_weight * beginning[q]
        for q in range(queries):
            if combined[q] > kept.least[q]:
                count = kept.counts[q]
                kept.docs[q, count], kept.scores[q, count] = first + d, combined[q]
                kept.counts[q] = count + 1
                if count + 1 == 2 * wanted:
                    kept.least[q] = _drop_worst(kept.docs[q], kept.scores[q])
                    kept.counts[q] = wanted


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _insert(products: Vectors, top: Vectors, value: Vectors) -> None:
    """Insert a passage's product for each query into the highest ones, float32[best, queries], best first.

    `value` float32[queries] is overwritten.
    """
    best = top[0]
    for q in range(len(value)):
        high, low = best[q], products[q]
        best[q] = high if high > low else low
        value[q] = low if high > low else high
    for place in range(1, len(top)):
        own = top[place]
        for q in range(len(value)):
            high, low = own[q], value[q]
            own[q] = high if high > low else low
            value[q] = low if high > low else high


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _drop_worst(docs: NDArray[np.int32], scores: NDArray[np.float32]) -> float:
    """Move the better half of the documents to the front, by row; returns their lowest score. Ties go to the first."""
    half = len(docs) // 2
    lowest: float = np.partition(scores, half)[half]
    ties = half - np.sum(scores > lowest)
    count = 0
    for i in range(len(docs)):
        if scores[i] > lowest or (scores[i] == lowest and ties > 0):
            ties -= scores[i] == lowest
            docs[count], scores[count] = docs[i], scores[i]
            count += 1
    return lowest


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _sort(kept: _Kept) -> None:
    """Sort the documents of each query by score down, then row up."""
    for q in range(len(kept.docs)):
        count = kept.counts[q]
        order = np.argsort(-kept.scores[q, :count], kind="mergesort")
        kept.docs[q, :count] = kept.docs[q, :count][order]
        kept.scores[q, :count] = kept.scores[q, :count][order]
