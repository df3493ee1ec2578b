"""The exact best sums of several searches, by the threshold algorithm (Fagin, Lotem and Naor, PODS 2001)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from retrieval.types import Rankings

GROWTH = 4
"""How much deeper each try looks than the one before."""


def best_sums(
    best: Callable[[int], Rankings], sums: Callable[[NDArray[np.int32]], NDArray[np.float64]], depth: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Rows and sums of the `depth` documents whose scores, over all searches, add up to most; ties by row.

    `best` gives the top documents of each search to a depth, with scores above 0, `sums` the sums of some rows. No
    document that no search has found so far can have more than the last scores together, which ends the looking.
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
        deep *= GROWTH
