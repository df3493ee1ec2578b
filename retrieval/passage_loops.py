"""The exact search by passages, in blocks of them, with compiled loops.

Blocks of passages pass by the queries, and each block has whole documents. A loop keeps the best documents of each
query so far. So memory holds the inner products of one block for each thread, and never those of all passages.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from keystone.indexing.embedder import Vectors
from keystone.indexing.vectors.faiss_index import bind_products
from keystone.indexing.vectors.passages import Offsets, PassageIndex
from keystone.retrieval.types import PassageScore

BLOCK_PASSAGES = 1_024
"""The maximum number of passages in a block, unless a single document has more."""
BLOCK_QUERIES = 512
"""The maximum number of queries in a block. Its inner products take two megabytes, which a core's cache holds."""
ROW_BITS = 0xFFFFFFFF
"""The bits of a key that hold a row. They are inverted, so that the lower row has the higher key."""
ORDER_BITS = np.int32(0x7FFFFFFF)
"""The bits of a negative float that are inverted, so that floats and their bits have one order."""


class _Kept(NamedTuple):
    """The best documents of each query so far, with room for twice the wanted number."""

    keys: NDArray[np.int64]
    """int64[queries, 2 * wanted]: the ordered bits of the score, then those of the row"""
    counts: NDArray[np.int64]
    """The number of documents of each query: int64[queries]"""
    least: NDArray[np.float32]
    """A score that a further document must exceed: float32[queries]"""


def find_best(
    passages: PassageIndex, queries: Vectors, depth: int, score: PassageScore
) -> list[tuple[NDArray[np.int32], NDArray[np.float32]]]:
    """Find the best `depth` documents of each query and their scores, best first."""
    shape = (len(queries), 2 * min(depth, len(passages.offsets) - 1))
    least = np.full(len(queries), -np.inf, np.float32)
    kept = _Kept(np.empty(shape, np.int64), np.zeros(len(queries), np.int64), least)
    groups = [slice(start, start + BLOCK_QUERIES) for start in range(0, len(queries), BLOCK_QUERIES)]
    multiply = [bind_products(queries[group]) for group in groups]
    for first, last in _find_blocks(passages.offsets):
        vectors, ends = passages.view(first, last), passages.offsets[first : last + 1] - passages.offsets[first]
        for group, products in zip(groups, multiply, strict=True):
            _keep_best(products(vectors), ends, first, score, _Kept._make(column[group] for column in kept))
    best = [np.sort(keys[:count])[::-1] for keys, count in zip(kept.keys, kept.counts, strict=True)]
    bits = [(keys >> 32).astype(np.int32) for keys in best]
    return [
        ((ROW_BITS - (keys & ROW_BITS)).astype(np.int32), (own ^ ((own >> 31) & ORDER_BITS)).view(np.float32))
        for keys, own in zip(best, bits, strict=True)
    ]


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
    """Offer the documents of a block, int64[documents + 1] of offsets, to queries: float32[passages, queries]."""
    queries, wanted = products.shape[1], kept.keys.shape[1] // 2
    top, value = np.empty((score.best, queries), np.float32), np.empty(queries, np.float32)
    total, combined = np.empty(queries, np.float64), np.empty(queries, np.float32)
    bits = combined.view(np.int32)
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
        for q in range(queries):  # adding 0.0 makes -0.0 the 0.0 that it equals
            mean = total[q] / held
            combined[q] = np.float32((1 - score.first_weight) * mean + score.first_weight * beginning[q]) + np.float32(
                0
            )
        for q in range(queries):
            if combined[q] > kept.least[q]:
                count = kept.counts[q]
                high = np.int64(bits[q] ^ ((bits[q] >> 31) & ORDER_BITS))
                kept.keys[q, count] = (high << 32) | (ROW_BITS - (first + d))
                kept.counts[q] = count + 1
                if count + 1 == 2 * wanted:
                    best = np.partition(kept.keys[q], wanted)[wanted:]
                    kept.keys[q, :wanted] = best
                    kept.least[q] = _read_score(best[0])
                    kept.counts[q] = wanted


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _read_score(key: int) -> float:
    bits = np.empty(1, np.int32)
    bits[0] = key >> 32
    bits[0] ^= (bits[0] >> 31) & ORDER_BITS
    read: float = bits.view(np.float32)[0]
    return read


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _insert(products: Vectors, top: Vectors, value: Vectors) -> None:
    """Insert products into the best ones, float32[best, queries], best first; `value` float32[queries] is space."""
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
