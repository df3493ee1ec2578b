"""The order in which trec_eval ranks: by score down, then by document id down."""

import numpy as np
from numpy.typing import NDArray

from runs.kernels import kernel
from runs.names import Names


def best_first(keys: NDArray[np.float32], names: Names, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of each query (query i owns `offsets[i]:offsets[i + 1]`) by key down, then name down in byte order."""
    order = np.arange(len(keys))
    _order(keys, names.data, names.starts, names.ends, offsets, order, np.empty_like(order))
    return order


@kernel
def _order(
    keys: NDArray[np.float32],
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    offsets: NDArray[np.int64],
    order: NDArray[np.int64],
    other: NDArray[np.int64],
) -> None:
    """A merge sort of each query, and nothing where its rows are in order."""
    for q in range(len(offsets) - 1):
        first, last = offsets[q], offsets[q + 1]
        width = 1
        for i in range(first + 1, last):
            if _before(i, i - 1, keys, data, starts, ends):
                break
        else:
            width = last - first
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


@kernel
def _before(
    one: int,
    two: int,
    keys: NDArray[np.float32],
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
