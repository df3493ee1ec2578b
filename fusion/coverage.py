"""Greedy choice of a set that covers all queries: it maximises `sum_q log(1 + sum_{i in set} u(q, i))` in a budget.

The function is submodular, with a cap or without one. If the budget counts items, the greedy set therefore reaches
at least 1 - 1/e of the optimum (Nemhauser, Wolsey and Fisher 1978). A set of one item is the first document by
Parasol (Keystone-Docs RAG, section 3.2.1).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.parasol import log_terms


def choose(
    utility: NDArray[np.float64], costs: Sequence[int], budget: int, cap: float = math.inf, per_cost: bool = False
) -> list[int]:
    """Choose items greedily, and return their numbers in the order of choice.

    `utility[q, i]` (float64[queries, items], not negative) is the use of item i to query q. NaN marks an absent grade
    and counts 0. `costs[i]` is the cost of item i in the unit of `budget`: 1 to count items, or a number of tokens.
    Each step takes the affordable item with the largest gain, and the earlier one at a tie. The choice ends when no
    affordable item gains anything. A query whose summed utility reaches `cap` is covered and gains no more. With a
    cap of 3, the highest grade, one exact document covers a query, and so do three related ones.

    If `per_cost` is true, each step takes the item with the largest gain for each unit of its cost, which is above 0.
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
        best = int(np.argmax(gains / prices if per_cost else gains))
        if gains[best] <= 0.0:
            return chosen
        chosen.append(best)
        covered += utility[:, [best]]
        left -= int(prices[best])
        open_items[best] = False
