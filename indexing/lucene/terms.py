"""Finding terms among those of the mapped postings: compiled loops over their bytes."""

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def find_terms(terms: Any, term_ends: Any, asked: Any, ends: Any) -> Any:
    """Find the place of each asked term among the terms by bisection: int64[asked]; -1 for none.

    Both lists of terms are bytes uint8[b] one after another, and int64[t + 1] says where each begins. The terms ascend.
    """
    places = np.empty(len(ends) - 1, np.int64)
    for i in range(len(places)):
        low, high, places[i] = 0, len(term_ends) - 1, -1
        while low < high and places[i] < 0:
            middle = (low + high) >> 1
            order = _compare(terms, term_ends[middle], term_ends[middle + 1], asked, ends[i], ends[i + 1])
            if order == 0:
                places[i] = middle
            elif order < 0:
                low = middle + 1
            else:
                high = middle
    return places


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _compare(left: Any, begin: int, end: int, right: Any, start: int, stop: int) -> Any:
    """Compare two parts of arrays of bytes: below 0 if the left one comes first, 0 if they are equal."""
    for place in range(min(end - begin, stop - start)):
        order = np.int64(left[begin + place]) - np.int64(right[start + place])
        if order != 0:
            return order
    return (end - begin) - (stop - start)
