"""Greedy choice of a set that covers all queries: `sum_q log(1 + sum_{i in set} u(q, i))` under a budget.

The function is submodular, with a cap or without one, so the greedy set is within 1 - 1/e of the best one for a
budget of items (Nemhauser, Wolsey and Fisher 1978). With one item it is Parasol (Keystone-Docs RAG, section 3.2.1).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusion.parasol import log_terms


def choose(utility: NDArray[np.float64], costs: Sequence[int], budget: int, cap: float = math.inf) -> list[int]:
    """The items chosen, in the order of choice.

    `utility` (float64[queries, items], not negative, NaN for an absent grade, which gives nothing) says what an item
    gives to a query, `costs` what it takes from the budget: 1 for a number of items, or tokens. The item with the
    largest gain that still fits is taken, the earlier one at a tie, until none gains or fits. A query to which the
    set gives `cap` is covered, and more gives it nothing: with 3, the highest grade, one exact document covers it,
    or several that are related, and the set ends when no item is left that gives to an uncovered query.
    """
    if utility.size == 0:
        return []
    utility = np.nan_to_num(utility, nan=0.0)
    covered = np.zeros((utility.shape[0], 1))
    left, open_items = budget, np.ones(utility.shape[1], dtype=bool)
    prices, chosen = np.asarray(costs), list[int]()
    while True:
        gains = (log_terms(np.minimum(covered + utility, cap)) - log_terms(np.minimum(covered, cap))).sum(axis=0)
        gains[~open_items | (prices > left)] = 0.0
        best = int(np.argmax(gains))
        if gains[best] <= 0.0:
            return chosen
        chosen.append(best)
        covered += utility[:, [best]]
        left -= int(prices[best])
        open_items[best] = False
