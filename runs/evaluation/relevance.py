"""The measures of relevance over many topics at once, as trec_eval defines them.

Each function gets gains of the judged documents of t topics, the highest first, and gains of their rankings: two arrays
float64[t, documents]. A gain is 0 for a document that is not relevant, and in places that only fill an array. A cutoff
of 0 stands for the whole ranking. The result is float64[t]; a topic without a relevant document has 0.

Sums go from the first rank to the last, so they do not depend on the number of places that fill an array.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Gains = NDArray[np.float64]


def measure_ndcg(judged: Gains, ranked: Gains, cutoff: int) -> Gains:
    """Normalized discounted cumulative gain (Jarvelin and Kekalainen, TOIS 2002), with the discount log2(rank + 1)."""
    own, best = (
        _add_up(gains / np.log2(np.arange(2, gains.shape[1] + 2)))
        for gains in (ranked[:, : cutoff or None], judged[:, : cutoff or None])
    )
    return _divide(own, best)


def measure_recall(judged: Gains, ranked: Gains, cutoff: int) -> Gains:
    """The share of the relevant documents that the ranking has."""
    return _divide(_count(ranked[:, : cutoff or None]), _count(judged))


def measure_precision(_judged: Gains, ranked: Gains, cutoff: int) -> Gains:
    """The share of relevant documents among the first `cutoff`, which is above 0. A missing row counts as one."""
    return _count(ranked[:, :cutoff]) / cutoff


def measure_average_precision(judged: Gains, ranked: Gains, cutoff: int) -> Gains:
    """The mean over all relevant documents of the precision at their ranks, 0 for those that the ranking lacks."""
    hits = ranked[:, : cutoff or None] > 0
    precisions = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return _divide(_add_up(precisions * hits), _count(judged))


def measure_reciprocal_rank(_judged: Gains, ranked: Gains, cutoff: int) -> Gains:
    """The inverse of the rank of the first relevant document."""
    hits = ranked[:, : cutoff or None] > 0
    return np.asarray(hits.any(axis=1) / (1.0 + hits.argmax(axis=1)), dtype=np.float64)


MEASURES: Mapping[str, Callable[[Gains, Gains, int], Gains]] = {
    "ndcg": measure_ndcg,
    "recall": measure_recall,
    "precision": measure_precision,
    "average_precision": measure_average_precision,
    "reciprocal_rank": measure_reciprocal_rank,
}
"""The measures by the names of their functions in `ranx.metrics`."""


def _add_up(values: NDArray[Any]) -> Gains:
    """Add up each row, from its first value to its last."""
    return np.add.accumulate(values, axis=1)[:, -1]


def _count(gains: Gains) -> NDArray[np.int64]:
    return np.asarray(np.count_nonzero(gains, axis=1), dtype=np.int64)


def _divide(values: NDArray[Any], by: NDArray[Any]) -> Gains:
    return values / np.where(by == 0, 1, by)
