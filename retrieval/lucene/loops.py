"""The compiled loops of BM25 over postings. `keystone.retrieval.lucene.postings` says what they compute."""

import math
from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def weigh_postings(
    offsets: Any, weights: Any, rows: Any, frequencies: Any, lengths: Any, inverse: Any, kept: Any
) -> None:
    """Put the weight of each posting of each term into `kept`. `weights` are the inverse frequencies of the terms."""
    one = np.float32(1)
    for term in range(len(weights)):
        weight = weights[term]
        for place in range(offsets[term], offsets[term + 1]):
            row = rows[place]
            if 0 <= row < len(lengths):
                kept[place] = weight - weight / (one + np.float32(frequencies[place]) * inverse[lengths[row]])


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def search_chunk(
    offsets: Any, places: Any, ends: Any, weights: Any, known: Any,
    rows: Any, frequencies: Any, lengths: Any, inverse: Any, kept: Any,
    sums: Any, taken: Any, sample: Any, best: Any, counts: Any,
) -> None:  # fmt: skip
    """Put the keys of the best documents of each query into a row of `best`, in any order, their number into `counts`.

    The number is -1 for damaged postings. A key has the bits of the score in its upper half, so that a greater score
    has a greater key. The lower half is greater for a smaller row. `places` has the next posting of each term, and
    moves on. `sums` holds zeros at the beginning and at the end. `taken` and `sample` are working space.
    """
    one, size, depth = np.float32(1), len(sums), best.shape[1]
    for query in range(len(counts)):
        found, least = 0, np.uint64(0)
        for first in range(0, len(lengths), size):
            count = min(size, len(lengths) - first)
            for term in range(offsets[query], offsets[query + 1]):
                place, end, weight = places[term], ends[term], weights[term]
                is_known = known[term]
                while place < end:
                    at = np.uint32(rows[place] - first)
                    if at >= count:
                        break
                    if is_known:
                        sums[at] += np.float64(kept[place])
                    elif len(inverse) == 0:  # impacts
                        sums[at] += np.float64(weight) * np.float64(frequencies[place])
                    else:
                        length = inverse[lengths[first + at]]
                        sums[at] += np.float64(weight - weight / (one + np.float32(frequencies[place]) * length))
                    place += 1
                places[term] = place
            low = least
            if found < depth:
                low = _guess_least(sums, count, first, depth, sample)
            above = _take_above(sums, count, first, low, taken, found)
            if above - found < depth and low > least:  # the keys before it may be below the guess
                above = _take_above(sums, count, first, least, taken, found)
            found = above
            if found > depth:
                _put_best_first(taken, found, depth)
                found = depth
            if found == depth:
                least = _find_least(taken, found)
            for done in range(count):
                sums[done] = 0.0
        for place in range(found):
            best[query, place] = taken[place]
        for term in range(offsets[query], offsets[query + 1]):
            if places[term] != ends[term]:
                found = -1
        counts[query] = found


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _key_of(sum: float, row: int) -> Any:
    return (np.uint64(np.float32(sum).view(np.uint32)) << np.uint64(32)) | np.uint64(0xFFFF_FFFF - row)


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _take_above(sums: Any, count: int, first: int, low: Any, keys: Any, found: int) -> int:
    """Append the keys above `low` of documents with a sum; returns the new number of keys."""
    near = np.float64(np.uint32(low >> np.uint64(32)).view(np.float32)) * (1 - 1e-6)
    for at in range(count):
        if sums[at] > near:
            key = _key_of(sums[at], first + at)
            if key > low:
                keys[found] = key
                found += 1
    return found


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _guess_least(sums: Any, count: int, first: int, depth: int, sample: Any) -> Any:
    """Guess a key below those of the best `depth` documents of a range from an even sample of it; 0 for no guess."""
    step = count // len(sample)
    if step < 2:
        return np.uint64(0)
    expected = depth / step
    wanted = int(expected + 3 * math.sqrt(expected) + 8)
    if wanted >= len(sample):
        return np.uint64(0)
    for place in range(len(sample)):
        at = place * step
        sample[place] = _key_of(sums[at], first + at) if sums[at] > 0 else 0
    _put_best_first(sample, len(sample), wanted)
    return _find_least(sample, wanted)


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _find_least(keys: Any, count: int) -> Any:
    least = keys[0]
    for place in range(1, count):
        least = min(least, keys[place])
    return least


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _put_best_first(keys: Any, count: int, best: int) -> None:
    """Put the `best` greatest of the first `count` keys first, in any order (Hoare, 1961)."""
    low, high = 0, count - 1
    while low < high:
        pivot, left, right = keys[(low + high) >> 1], low, high
        while left <= right:
            while keys[left] > pivot:
                left += 1
            while keys[right] < pivot:
                right -= 1
            if left <= right:
                keys[left], keys[right] = keys[right], keys[left]
                left += 1
                right -= 1
        if best - 1 <= right:
            high = right
        elif best - 1 >= left:
            low = left
        else:
            break
