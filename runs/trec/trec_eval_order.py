"""The order in which trec_eval ranks (score down, then document id down), and the ascending order of ids."""

import numpy as np
from numpy.typing import NDArray

from keystone.runs.trec.doc_ids import Ids
from keystone.runs.trec.kernels import kernel


def sort_best_first(
    keys: NDArray[np.float32] | NDArray[np.uint64], ids: Ids, offsets: NDArray[np.int64]
) -> NDArray[np.int64] | slice:
    """Sort the rows of each query, `offsets[i]:offsets[i + 1]`, by key down, then id down in byte order.

    Returns the sorted row numbers (int64[rows]). If all rows are in order already, it returns a slice of all rows.
    """
    order = np.arange(len(keys))
    moved = _merge_sort(keys, ids.data, ids.starts, ids.ends, offsets, order, np.empty_like(order))
    return order if moved else slice(None)


def place_by_id(ids: Ids, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find the place of each row after sorting each query's ids up in byte order: int64[rows].

    The rows of query i keep the places `offsets[i]:offsets[i + 1]`.
    """
    keys = np.empty(len(ids), np.uint64)
    _fill_keys(ids.data, ids.starts, ids.ends, offsets, keys)
    rows = np.arange(len(ids))
    places = np.empty_like(rows)
    places[rows[sort_best_first(keys, ids, offsets)]] = rows
    first_and_last = np.repeat(offsets[:-1] + offsets[1:] - 1, np.diff(offsets))
    reversed: NDArray[np.int64] = first_and_last - places
    return reversed


@kernel
def _fill_keys(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    offsets: NDArray[np.int64],
    keys: NDArray[np.uint64],
) -> None:
    """Fill `keys` with the eight bytes that follow the common prefix of a query's ids, as one number.

    If two keys differ, they have the order of their ids. Zeros fill up an id that ends within its eight bytes.
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
def _merge_sort(
    keys: NDArray[np.float32] | NDArray[np.uint64],
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    offsets: NDArray[np.int64],
    order: NDArray[np.int64],
    other: NDArray[np.int64],
) -> int:
    """Merge-sort each query whose rows are out of order. Returns the number of such queries."""
    moved = 0
    for q in range(len(offsets) - 1):
        first, last = offsets[q], offsets[q + 1]
        width = 1
        for i in range(first + 1, last):
            if _comes_before(i, i - 1, keys, data, starts, ends):
                break
        else:
            continue
        moved += 1
        while width < last - first:
            for start in range(first, last, 2 * width):
                middle, end = min(start + width, last), min(start + 2 * width, last)
                i, j = start, middle
                for k in range(start, end):
                    if i < middle and (j == end or not _comes_before(order[j], order[i], keys, data, starts, ends)):
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
def _comes_before(
    one: int,
    two: int,
    keys: NDArray[np.float32] | NDArray[np.uint64],
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> bool:
    if keys[one] != keys[two]:
        return bool(keys[one] > keys[two])
    return _compare_ids(data, starts[one], ends[one], starts[two], ends[two]) > 0


@kernel
def _compare_ids(data: NDArray[np.uint8], start: int, end: int, other_start: int, other_end: int) -> int:
    """Compare two ids in byte order: below 0 if the first comes first, 0 if they are equal, else above 0."""
    for i in range(min(end - start, other_end - other_start)):
        a, b = np.int64(data[start + i]), np.int64(data[other_start + i])
        if a != b:
            return int(a - b)
    return (end - start) - (other_end - other_start)
