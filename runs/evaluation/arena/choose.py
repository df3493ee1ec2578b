"""The choice of matches whose outcomes say most about the order of runs, so that fewer calls find it.

Each round takes the ratings of the battles before it. The more doubtful the order of two neighbours is, and the more a
match narrows their difference, the sooner it is judged. A judged match narrows differences by a rank-one update of the
covariance, whatever its outcome: this is sequential design for the Bradley-Terry model (as for D-optimality, but for
the order).
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from keystone.runs.evaluation.arena.fit import Fit
from keystone.runs.evaluation.arena.tasks import Match

MOST_SHARE = 0.5
"""The share of all matches that are judged at most."""
ROUNDS = 12
"""The number of rounds in which this share is judged. More rounds choose better, but wait more often for replies."""
SURE = 3.0
"""When the differences of all neighbours are so many standard errors from 0, no further match is judged."""
PRIOR_PRECISION = 0.1
"""The precision of a rating before any battle."""

Floats = NDArray[np.float64]


def count_round(matches: int, runs: int) -> int:
    """Count the matches of a round: a twelfth of what may be judged, and at least one for each run."""
    return max(runs, -(-int(matches * MOST_SHARE) // ROUNDS))


def choose_matches(
    matches: Sequence[Match], judged: set[Match], run_ids: Sequence[str], fit: Fit, number: int
) -> list[Match]:
    """Choose up to `number` matches that are not judged yet; none once the order is sure.

    Of the narratives of a chosen pair, the one with the fewest judged matches comes first, and then the order of a
    hash.
    """
    place = {name: row for row, name in enumerate(run_ids)}
    left: dict[tuple[int, int], list[Match]] = {}
    for match in matches:
        if match not in judged:
            left.setdefault((place[match.left], place[match.right]), []).append(match)
    for own in left.values():
        own.sort(key=_hash)
    number = min(number, int(len(matches) * MOST_SHARE) - len(judged))
    fought = np.zeros((len(run_ids), len(run_ids)))
    for match in judged:
        fought[place[match.left], place[match.right]] += 1
    covariance = _find_covariance(fought, fit)
    order = np.argsort(-fit.theta, kind="stable")
    neighbours = np.stack([order[:-1], order[1:]], 1)
    used = Counter(match.topic_id for match in judged)
    chosen: list[Match] = []
    if judged and not _find_doubts(fit.theta, covariance, neighbours)[1]:
        return []
    while len(chosen) < number and left:
        doubts, _ = _find_doubts(fit.theta, covariance, neighbours)
        pairs = np.array([*left])
        one, other = pairs.T
        spread = covariance[:, one] - covariance[:, other]
        shared = spread[neighbours[:, 0]] - spread[neighbours[:, 1]]
        own = spread[one, np.arange(len(pairs))] - spread[other, np.arange(len(pairs))]
        p = 1 / (1 + np.exp(fit.theta[other] - fit.theta[one]))
        weight = p * (1 - p)
        gains = doubts @ shared**2 * weight / (1 + weight * own)
        best = int(np.argmax(gains))
        pair = (int(one[best]), int(other[best]))
        match = min(left[pair], key=lambda one: used[one.topic_id])
        left[pair].remove(match)
        if not left[pair]:
            del left[pair]
        chosen.append(match)
        used[match.topic_id] += 1
        narrowed = spread[:, best]
        covariance = covariance - np.outer(narrowed, narrowed) * weight[best] / (1 + weight[best] * own[best])
    return chosen


def _hash(match: Match) -> bytes:
    return sha256("\0".join([match.left, match.right, match.topic_id]).encode("utf-8", "surrogatepass")).digest()


def _find_covariance(fought: Floats, fit: Fit) -> Floats:
    p = 1 / (1 + np.exp(fit.theta - fit.theta[:, None]))
    weights = (fought + fought.T) * p * (1 - p)
    information = np.diag(weights.sum(1)) - weights + PRIOR_PRECISION * np.eye(len(p))
    return np.asarray(np.linalg.inv(information))


def _find_doubts(theta: Floats, covariance: Floats, neighbours: NDArray[np.intp]) -> tuple[Floats, bool]:
    """Find how much is still to be told about each pair of neighbours, and whether any of them is in doubt.

    The worth of a narrower difference falls with its standard errors from 0, as the density of a normal law does.
    """
    one, other = neighbours.T
    variance = covariance[one, one] + covariance[other, other] - 2 * covariance[one, other]
    errors = (theta[one] - theta[other]) / np.sqrt(variance)
    return np.exp(-(errors**2) / 2) / variance**1.5, bool((errors < SURE).any())
