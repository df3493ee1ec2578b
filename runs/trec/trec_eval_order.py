"""The order in which trec_eval ranks, by score down, then by document id down; and that of ids alone, up."""

import numpy as np
from numpy.typing import NDArray

from runs.trec.doc_ids import Names
from runs.trec.kernels import kernel


def best_first(
    keys: NDArray[np.float32] | NDArray[np.uint64], names: Names, offsets: NDArray[np.int64]
) -> NDArray[np.int64] | slice:
    """The rows of each query (query i owns `offsets[i]:offsets[i + 1]`) by key down, then name down in byte order.

    A slice of all rows where they are in order already.
    """
    order = np.arange(len(keys))
    moved = _order(keys, names.data, names.starts, names.ends, offsets, order, np.empty_like(order))
    return order if moved else slice(None)


def places_by_name(names: Names, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row where it stands when the names of each query are in byte order, ascending: int64[rows].

    The rows of query i, `offsets[i]:offsets[i + 1]`, stand at these places again.
    """
    keys = np.empty(len(names), np.uint64)
    _keys(names.data, names.starts, names.ends, offsets, keys)
    rows = np.arange(len(names))
    places = np.empty_like(rows)
    places[rows[best_first(keys, names, offsets)]] = rows
    first_and_last = np.repeat(offsets[:-1] + offsets[1:] - 1, np.diff(offsets))
    reversed: NDArray[np.int64] = first_and_last - places
    return reversed


@kernel
def _keys(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    offsets: NDArray[np.int64],
    keys: NDArray[np.uint64],
) -> None:
    """Fill `keys` with the eight bytes that follow all that the names of a query begin with, as one number.

    Where two keys differ, the names have the same order; a name that ends within its eight bytes is filled up with 0.
    """
    for q in range(len(offsets) - 1):
        first, last = offsets[q], offsets[q + 1]
        if first == last:
            continue
        common = ends[first] - starts[first]
        for i in range(first + 1, last):
            common = min(common, ends[i] - starts[i])
            for at in range(common):
                if data[starts[i] + at] != data[starts[first] + at]:
                    common = at
                    break
        for i in range(first, last):
            key = np.uint64(0)
            for at in range(starts[i] + common, starts[i] + common + 8):
                key = key << np.uint64(8) | (np.uint64(data[at]) if at < ends[i] else np.uint64(0))
            keys[i] = key


@kernel
def _order(
    keys: NDArray[np.float32] | NDArray[np.uint64],
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    offsets: NDArray[np.int64],
    order: NDArray[np.int64],
    other: NDArray[np.int64],
) -> int:
    """A merge sort of each query, and nothing where its rows are in order; returns for how many they were not."""
    moved = 0
    for q in range(len(offsets) - 1):
        first, last = offsets[q], offsets[q + 1]
        width = 1
        for i in range(first + 1, last):
            if _before(i, i - 1, keys, data, starts, ends):
                break
        else:
            continue
        moved += 1
        while width < last - first:
            for start in range(first, last, 2 * width):
                middle, end = min(start + width, last), min(start + 2 * width, last)
                i, j = start, middle
                for k in range(start, end):
                    if i < middle and (j == end or not _before(order[j], order[i], keys, data, starts, ends)):
                        other[k] = order[i]
                        i += 1
                    else:
                        other[k] = order[j]
                        j += 1
            for k in range(first, last):
                order[k] = other[k]
            width *= 2
    return moved


@kernel
def _before(
    one: int,
    two: int,
    keys: NDArray[np.float32] | NDArray[np.uint64],
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> bool:
    if keys[one] != keys[two]:
        return bool(keys[one] > keys[two])
    return _compare(data, starts[one], ends[one], starts[two], ends[two]) > 0


@kernel
def _compare(data: NDArray[np.uint8], start: int, end: int, other_start: int, other_end: int) -> int:
    """Below 0, 0 or above 0 as the one name comes before, equals or comes after the other in byte order."""
    for i in range(min(end - start, other_end - other_start)):
        a, b = np.int64(data[start + i]), np.int64(data[other_start + i])
        if a != b:
            return int(a - b)
    return (end - start) - (other_end - other_start)
