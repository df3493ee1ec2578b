"""The sort by majority votes of Condorcet-fuse (Montague and Aslam, CIKM 2002)."""

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)  # type: ignore[untyped-decorator]
def by_majority(start: NDArray[np.int64], ranks: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """The documents of `start` merge-sorted so that each is ranked above the next by lists of no less weight.

    `ranks` (int64[documents, lists]) are the ranks, the highest number for an absent document; votes are added in
    the order of `weights` (ascending), so that the order of equally heavy lists does not matter.
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
