"""Greedy choice of a set that covers all queries: `sum_q log(1 + sum_{i in set} u(q, i))` under a budget.

The function is submodular, so the greedy set is within 1 - 1/e of the best one for a budget of items
(Nemhauser, Wolsey and Fisher 1978). With one item it is Parasol (Keystone-Docs RAG, section 3.2.1).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def choose(utility: NDArray[np.float64], costs: Sequence[int], budget: int) -> list[int]:
    """The items chosen, in the order of choice.

    `utility` (float64[queries, items], not negative) says what an item gives to a query, `costs` what it takes
    from the budget. The item with the largest gain that still fits is taken, the earlier one at a tie, until
    none gains or fits.
    """
    if utility.size == 0:
        return []
    covered = np.zeros(utility.shape[0])
    left, open_items = budget, np.ones(utility.shape[1], dtype=bool)
    prices, chosen = np.asarray(costs), list[int]()
    while True:
        gains = np.log((1 + covered[:, None] + utility) / (1 + covered[:, None])).sum(axis=0)
        gains[~open_items | (prices > left)] = 0.0
        best = int(np.argmax(gains))
        if gains[best] <= 0.0:
            return chosen
        chosen.append(best)
        covered += utility[:, best]
        left -= int(prices[best])
        open_items[best] = False
