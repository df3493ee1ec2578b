"""The sort by majority votes that Condorcet-fuse is built on (Montague and Aslam, CIKM 2002)."""

import numpy as np
from numba import njit
from numpy.typing import NDArray


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
