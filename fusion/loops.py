"""The compiled loops of fusion: reciprocal rank fusion, and the sort by majority votes of Condorcet-fuse.

The sums of the first equal `keystone.fusion.methods.rrf` to the last bit. The second is that of Montague and Aslam
(CIKM 2002).
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

DIGIT_BITS = 11
"""Bits of a radix digit."""


@njit(cache=True)  # type: ignore[untyped-decorator]
def _sort_by_sum(
    sums: NDArray[np.float64], found: NDArray[np.int32], order: NDArray[np.int32], spare: NDArray[np.int32]
) -> None:
    """Fill `order` with the positions of `sums` (not negative, one or more) by sum down, then `found` up.

    Floats that are not negative sort as their bits do. Two radix passes sort by the 22 highest bits that differ. An
    insertion sort then makes the order exact, and has little left to move.
    """
    bits = sums.view(np.int64)
    high = bits.max()
    span, shift = high - bits.min(), 0
    while span >> shift >= 1 << 2 * DIGIT_BITS:
        shift += 1
    order[:] = np.arange(len(sums))
    source, target = order, spare
    for digit in range(2):
        down = shift + digit * DIGIT_BITS
        starts = np.zeros((1 << DIGIT_BITS) + 1, dtype=np.int64)
        for j in range(len(sums)):
            starts[(((high - bits[j]) >> down) & ((1 << DIGIT_BITS) - 1)) + 1] += 1
        starts = np.cumsum(starts)
        for i in range(len(sums)):
            value = ((high - bits[source[i]]) >> down) & ((1 << DIGIT_BITS) - 1)
            target[starts[value]] = source[i]
            starts[value] += 1
        source, target = target, source
    for i in range(1, len(sums)):
        j, p = order[i], i
        while p > 0:
            before = order[p - 1]
            if sums[before] > sums[j] or (sums[before] == sums[j] and found[before] < found[j]):
                break
            order[p] = before
            p -= 1
        order[p] = j


@njit(cache=True)  # type: ignore[untyped-decorator]
def fuse_lists(
    docs: NDArray[np.int32],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    weights: NDArray[np.float64],
    groups: NDArray[np.int64],
    k: float,
    depth: int,
    out_docs: NDArray[np.int32],
    out_scores: NDArray[np.float64],
    out_counts: NDArray[np.int64],
) -> int:
    """Fuse the lists `groups[g]:groups[g + 1]` of each group g, and return the number of rows written.

    The loop visits ranks from the top across all lists of a group, and lists by weight. So a document's terms are
    added in an order that does not depend on the order of the lists. A hash table holds the sums of a group. It has
    four times as many slots as the group has rows, so it fits the cache however large document numbers are.
    """
    most = 0
    for g in range(len(groups) - 1):
        own = slice(groups[g], groups[g + 1])
        most = max(most, (ends[own] - starts[own]).sum())
    sums, found = np.empty(most), np.empty(most, np.int32)
    order, spare = np.empty(most, np.int32), np.empty(most, np.int32)
    table = np.empty(8 * most + 2, np.int32)
    written = 0
    for g in range(len(groups) - 1):
        rows = longest = 0
        for i in range(groups[g], groups[g + 1]):
            rows += ends[i] - starts[i]
            longest = max(longest, ends[i] - starts[i])
        bits = 1
        while 1 << bits < 4 * rows:
            bits += 1
        table[: 1 << bits] = -1
        count = 0
        for rank in range(longest):
            for i in range(groups[g], groups[g + 1]):
                if starts[i] + rank < ends[i]:
                    doc = docs[starts[i] + rank]
                    term = weights[i] / (k + (rank + 1))  # in this order, as NumPy adds a fractional k
                    # Fibonacci hashing: the high bits of a product with 2 ** 64 over the golden ratio.
                    slot = np.int64((np.uint64(doc) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits))
                    while table[slot] >= 0 and found[table[slot]] != doc:
                        slot = (slot + 1) & ((1 << bits) - 1)
                    if table[slot] < 0:
                        table[slot] = count
                        found[count], sums[count] = doc, term
                        count += 1
                    else:
                        sums[table[slot]] += term
        if count:
            _sort_by_sum(sums[:count], found[:count], order[:count], spare[:count])
        out_counts[g] = min(count, depth)
        for j in range(out_counts[g]):
            out_docs[written], out_scores[written] = found[order[j]], sums[order[j]]
            written += 1
    return written


@njit(cache=True)  # type: ignore[untyped-decorator]
def sort_by_majority(
    start: NDArray[np.int64], ranks: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Merge-sort the documents of `start` (int64[documents]) so that no document is outvoted by the next one.

    `ranks` (int64[documents, lists]) holds the highest integer for a document that a list lacks. `weights`
    (float64[lists]) ascend, and votes are added in their order. So the order of lists with equal weights does not
    matter.
    """
    order, merged = start.copy(), start.copy()
    width = 1
    while width < len(order):
        for first in range(0, len(order), 2 * width):
            left, right = first, first + width
            middle, end = min(right, len(order)), min(right + width, len(order))
            right = middle
            for place in range(first, end):
                take_right = left == middle
                if left < middle and right < end:
                    above = below = 0.0
                    for i in range(len(weights)):
                        difference = ranks[order[right], i] - ranks[order[left], i]
                        if difference < 0:
                            above += weights[i]
                        elif difference > 0:
                            below += weights[i]
                    take_right = above > below
                merged[place] = order[right] if take_right else order[left]
                if take_right:
                    right += 1
                else:
                    left += 1
        order, merged = merged, order
        width *= 2
    return order
