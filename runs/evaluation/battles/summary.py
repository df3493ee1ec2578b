"""The numbers of a pair of answer files: wins, marks, and how far the two orders agree."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keystone.generation.grading.battles import Battle
from keystone.generation.types import Failure
from keystone.runs.evaluation.battles.pair import CREDIT, Pair
from keystone.runs.evaluation.resample import find_bootstrap_interval

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """What comes of the battles of a pair, for its first file. Intervals of 95 % are by bootstrap over narratives.

    Numbers that cannot be computed, such as marks of answers that nobody saw, are NaN.
    """

    won: int
    lost: int
    tied: int
    unjudged: int
    """The narratives without two verdicts."""
    win_share: float
    """The share of narratives won, where a tie counts half."""
    win_interval: Interval
    p_sign: float
    """p of the two-sided sign test on narratives that were won or lost."""
    mark: float
    other_mark: float
    mark_difference: float
    mark_interval: Interval
    agreeing: int
    """The narratives on which both orders say the same."""
    judged: int
    """The narratives that the model judged in both orders."""
    first_slot_share: float
    """The share of verdicts for the answer that was shown first, where a tie counts half; .5 without bias."""
    first_slot_interval: Interval


def summarise_pair(pair: Pair) -> Summary:
    """Summarise the battles of a pair. Marks are means over both orders, then over narratives."""
    from scipy.stats import binomtest

    outcomes = np.array([one.outcome for one in pair.fights if one.outcome is not None])
    judged = [
        (one, other)
        for fight in pair.fights
        for one, other in [fight.battles or (Failure(""), Failure(""))]
        if isinstance(one, Battle) and isinstance(other, Battle)
    ]
    marks = np.array([((one.mark_a + other.mark_b) / 2, (one.mark_b + other.mark_a) / 2) for one, other in judged])
    marks = marks.reshape(-1, 2)
    differences = marks[:, 0] - marks[:, 1]
    slots = np.array([(CREDIT[one.verdict] + CREDIT[other.verdict]) / 2 for one, other in judged])
    won, lost = int(np.count_nonzero(outcomes == 1)), int(np.count_nonzero(outcomes == 0))
    return Summary(
        won,
        lost,
        len(outcomes) - won - lost,
        len(pair.fights) - len(outcomes),
        _mean(outcomes),
        find_bootstrap_interval(outcomes),
        float(binomtest(won, won + lost).pvalue) if won + lost else float("nan"),
        _mean(marks[:, 0]),
        _mean(marks[:, 1]),
        _mean(differences),
        find_bootstrap_interval(differences),
        sum(CREDIT[one.verdict] + CREDIT[other.verdict] == 1 for one, other in judged),
        len(judged),
        _mean(slots),
        find_bootstrap_interval(slots),
    )


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")
