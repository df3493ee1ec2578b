"""Score normalisations, under ranx's names: each list by itself, so that scores of different systems can be added.

None divides by zero: what a list of equal scores gets is said at each. (ranx divides by 1e-9 there, so that
min-max, for one, gives 0 to the only document of a list, as if it had not been found.)
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fusion.hits import Floats, Hits


def none(hits: Hits) -> Hits:
    """The scores as they are (`norm=None` in ranx)."""
    return hits


def min_max(hits: Hits) -> Hits:
    """(s - min) / (max - min); equal scores are all 1."""
    low, high = _low(hits.scores, hits), _high(hits.scores, hits)
    return replace(hits, scores=_divided(hits.scores - low, high - low, otherwise=1.0))


def min_max_inverted(hits: Hits) -> Hits:
    """(max - s) / (max - min), for distances, of which the smallest is the best; equal scores are all 1."""
    return min_max(replace(hits, scores=-hits.scores))


def by_max(hits: Hits) -> Hits:
    """Scores over |max|; a list whose best score is 0 stays as it is. (ranx divides negative scores by 1e-9.)"""
    return replace(hits, scores=_divided(hits.scores, np.abs(_high(hits.scores, hits)), otherwise=hits.scores))


def by_sum(hits: Hits) -> Hits:
    """(s - min) / sum of all (s - min); n equal scores are 1 / n each."""
    above = hits.scores - _low(hits.scores, hits)
    return replace(hits, scores=_divided(above, _sum(above, hits), otherwise=1 / hits.lists.lengths[hits.list]))


def zmuv(hits: Hits) -> Hits:
    """(s - mean) / standard deviation (zero mean, unit variance); equal scores are all 0."""
    lengths = hits.lists.lengths[hits.list]
    from_mean = hits.scores - _sum(hits.scores, hits) / lengths
    deviation = np.sqrt(_sum(from_mean**2, hits) / lengths)
    equal = _low(hits.scores, hits) == _high(hits.scores, hits)
    return replace(hits, scores=_divided(from_mean, np.where(equal, 0, deviation), otherwise=0.0))


def rank(hits: Hits) -> Hits:
    """1 - (rank - 1) / n, for a list of n."""
    return replace(hits, scores=1 - (hits.ranks - 1) / hits.lists.lengths[hits.list])


def borda(hits: Hits) -> Hits:
    """Borda's points over the number of documents in the group; documents that a list lacks get a score, too."""
    points = hits.with_absent()
    return replace(points, scores=points.scores / hits.candidates[hits.groups][points.document])


NORMS: dict[str, Callable[[Hits], Hits]] = {
    "none": none,
    "min-max": min_max,
    "min-max-inverted": min_max_inverted,
    "max": by_max,
    "sum": by_sum,
    "zmuv": zmuv,
    "rank": rank,
    "borda": borda,
}


def _low(scores: Floats, hits: Hits) -> Floats:
    """The lowest score of each row's list."""
    return -_high(-scores, hits)


def _high(scores: Floats, hits: Hits) -> Floats:
    """The highest score of each row's list."""
    high = np.full(len(hits.lists.weights), -np.inf)
    np.maximum.at(high, hits.list, scores)
    return high[hits.list]


def _sum(values: Floats, hits: Hits) -> Floats:
    """The sum over each row's list."""
    return np.bincount(hits.list, values, minlength=len(hits.lists.weights)).astype(np.float64, copy=False)[hits.list]


def _divided(values: Floats, by: Floats, otherwise: Floats | float) -> Floats:
    """Values over what they are divided by, and `otherwise` where that is 0."""
    return np.where(by > 0, values / np.where(by > 0, by, 1), otherwise)
