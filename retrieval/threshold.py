"""The exact best sums of several searches, by the threshold algorithm (Fagin, Lotem and Naor, PODS 2001)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from keystone.retrieval.types import Rankings

DEPTH_FACTOR = 4
"""The factor between the depths of one try and the next."""


def find_best_sums(
    best: Callable[[int], Rankings], sums: Callable[[NDArray[np.int32]], NDArray[np.float64]], depth: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Find the `depth` documents with the highest sum of scores over all searches; ties by row.

    `best(n)` ranks the top n documents of each search, with scores above 0. `sums(rows)` returns the exact sums of
    int32[n] rows: float64[n]. A document that no search has found yet cannot exceed the sum of the searches' last
    scores. The function looks deeper until that bound is below the last wanted sum. Returns rows int32[n] and sums
    float64[n], n <= depth.
    """
    deep = depth
    while True:
        found = best(deep)
        rows = np.unique(found.docs)
        totals = sums(rows)
        order = np.lexsort((rows, -totals))[:depth]
        last = [float(found.scores_of(i)[-1]) for i in range(len(found)) if len(found.of(i)) == deep]
        if not last or (len(order) == depth and totals[order[-1]] > sum(last)):
            return rows[order], totals[order]
        deep *= DEPTH_FACTOR
