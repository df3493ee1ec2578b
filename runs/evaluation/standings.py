"""Where many runs stand by one measure: ranks, intervals, what ties with the best, and how hard topics are."""

from collections.abc import Sequence
from dataclasses import dataclass

from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.leaderboard import TopicRow, list_topics, rank_runs, sort_runs
from keystone.runs.evaluation.pairs import LEVEL, Pair, compare_all_pairs, find_letters


@dataclass(frozen=True, slots=True)
class Standing:
    """A run with its place: its rank, its interval, whether it ties with the best, and its letters."""

    run: Evaluation
    rank: int
    low: float
    high: float
    ties: bool
    letters: str
    against_best: Pair | None
    """The best run against this one; None for the best."""


@dataclass(frozen=True, slots=True)
class Standings:
    """All runs by one measure, best first, and all topics, hardest first."""

    measure: str
    runs: list[Standing]
    topics: list[TopicRow]


def rank_all(evaluations: Sequence[Evaluation], measure: str) -> Standings:
    """Sort runs by a measure, and test all pairs once."""
    runs = sort_runs(evaluations, measure)
    pairs = compare_all_pairs(runs, measure) if len(runs) > 1 else []
    letters = find_letters([one.name for one in runs], pairs)
    against = {pair.second: pair for pair in pairs[: len(runs) - 1]}
    standings = []
    for one, rank in zip(runs, rank_runs(runs, measure), strict=True):
        pair = against.get(one.name)
        ties = pair is None or not pair.p_tukey < LEVEL
        standings.append(Standing(one, rank, *one.interval(measure), ties, letters[one.name], pair))
    return Standings(measure, standings, list_topics(runs, measure))
