"""Score normalisations, under ranx's names: they make scores of different systems comparable, list by list.

In the formulas `s` is a score of a list of `n` documents. No normalisation divides by zero: each docstring gives the
result for a list of equal scores. (There, ranx divides by 1e-9. So its min-max gives 0 to the only document of a
list, as if the list lacked it.)
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from keystone.fusion.hits import Floats, Hits


def keep_scores(hits: Hits) -> Hits:
    """Keep the scores as they are (`norm=None` in ranx)."""
    return hits


def scale_to_range(hits: Hits) -> Hits:
    """Scale scores to 0 to 1: (s - min) / (max - min). Equal scores become 1."""
    low, high = _find_lowest(hits.scores, hits), _find_highest(hits.scores, hits)
    return replace(hits, scores=_divide(hits.scores - low, high - low, otherwise=1.0))


def scale_inverted(hits: Hits) -> Hits:
    """Scale distances, of which the smallest is the best: (max - s) / (max - min). Equal scores become 1."""
    return scale_to_range(replace(hits, scores=-hits.scores))


def divide_by_max(hits: Hits) -> Hits:
    """Divide scores by |max|. A list whose highest score is 0 stays as it is. (ranx divides negative ones by 1e-9.)"""
    return replace(hits, scores=_divide(hits.scores, np.abs(_find_highest(hits.scores, hits)), otherwise=hits.scores))


def divide_by_sum(hits: Hits) -> Hits:
    """Divide scores by their sum, counted from the lowest: (s - min) / sum (s - min). Equal scores become 1 / n."""
    above = hits.scores - _find_lowest(hits.scores, hits)
    return replace(hits, scores=_divide(above, _sum_by_list(above, hits), otherwise=1 / hits.lists.lengths[hits.list]))


def standardise(hits: Hits) -> Hits:
    """Give scores zero mean and unit variance: (s - mean) / standard deviation. Equal scores become 0."""
    lengths = hits.lists.lengths[hits.list]
    from_mean = hits.scores - _sum_by_list(hits.scores, hits) / lengths
    deviation = np.sqrt(_sum_by_list(from_mean**2, hits) / lengths)
    equal = _find_lowest(hits.scores, hits) == _find_highest(hits.scores, hits)
    return replace(hits, scores=_divide(from_mean, np.where(equal, 0, deviation), otherwise=0.0))


def score_by_rank(hits: Hits) -> Hits:
    """Replace scores by ranks: 1 - (rank - 1) / n."""
    return replace(hits, scores=1 - (hits.ranks - 1) / hits.lists.lengths[hits.list])


def score_by_borda(hits: Hits) -> Hits:
    """Replace scores by Borda's points, divided by the number of documents in the group.

    A document that a list lacks gets a score there, too.
    """
    points = hits.add_absent_documents()
    return replace(points, scores=points.scores / hits.candidates[hits.groups][points.document])


NORMS: dict[str, Callable[[Hits], Hits]] = {
    "none": keep_scores,
    "min-max": scale_to_range,
    "min-max-inverted": scale_inverted,
    "max": divide_by_max,
    "sum": divide_by_sum,
    "zmuv": standardise,
    "rank": score_by_rank,
    "borda": score_by_borda,
}


def _find_lowest(scores: Floats, hits: Hits) -> Floats:
    """Find the lowest score of each row's list: float64[rows]."""
    return -_find_highest(-scores, hits)


def _find_highest(scores: Floats, hits: Hits) -> Floats:
    """Find the highest score of each row's list: float64[rows]."""
    high = np.full(len(hits.lists.weights), -np.inf)
    np.maximum.at(high, hits.list, scores)
    return high[hits.list]


def _sum_by_list(values: Floats, hits: Hits) -> Floats:
    """Sum the values over each row's list: float64[rows]."""
    return np.bincount(hits.list, values, minlength=len(hits.lists.weights)).astype(np.float64, copy=False)[hits.list]


def _divide(values: Floats, by: Floats, otherwise: Floats | float) -> Floats:
    """Divide values; if a divisor is 0, take `otherwise`."""
    return np.where(by > 0, values / np.where(by > 0, by, 1), otherwise)
