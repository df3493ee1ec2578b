"""A tournament of answers: which battles are judged, and the leaderboard that comes of their verdicts."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keystone.generation.grading.arena import ArenaVerdict
from keystone.generation.types import Failure
from keystone.runs.evaluation.arena.answers import AnswerSet
from keystone.runs.evaluation.arena.choose import choose_matches, count_round
from keystone.runs.evaluation.arena.fit import (
    LOST,
    TIED,
    WON,
    Fit,
    find_bootstrap_intervals,
    find_groups,
    find_sandwich_widths,
    fit_ratings,
)
from keystone.runs.evaluation.arena.tasks import SEED, Match, Task, list_matches, list_tasks
from keystone.runs.evaluation.resample import find_bootstrap_interval

Floats = NDArray[np.float64]
TIES: Collection[str] = ("Tie", "Tie (Both Bad)")
PLACES: Mapping[str, int] = {"A": WON, "B": LOST, **dict.fromkeys(TIES, TIED)}
"""The place of a verdict in counts, for the run that is shown first."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a tournament is played. The defaults are those of the track's evaluator."""

    seed: int = SEED
    both_orders: bool = False
    """Whether each pair is judged in both orders, and the advantage of the first slot fitted."""
    repeats: int = 1
    """How often each battle is judged, by sampled replies."""
    adaptive: bool = False
    """Whether only the matches are judged that say most about the order, at most half of all."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """A battle with its verdict, or the reason why it has none."""

    task: Task
    verdict: ArenaVerdict | Failure

    @property
    def winner(self) -> str | None:
        """The run that is preferred; None for a tie and without a verdict."""
        return {"A": self.task.a, "B": self.task.b}.get(str(self.verdict))


Judge = Callable[[Sequence[Task]], Sequence[ArenaVerdict | Failure]]
"""Gives each battle a verdict, or the reason why it has none."""


def play(sets: Sequence[AnswerSet], judge: Judge, settings: Settings) -> list[Judgment]:
    """Play a tournament of the runs of `sets`: all matches, or those that `choose_matches` takes, round by round."""
    matches = list_matches(sets)

    def judge_all(chosen: Sequence[Match]) -> list[Judgment]:
        of_match = (list_tasks(one, settings.seed, settings.both_orders, settings.repeats) for one in chosen)
        tasks = [task for own in of_match for task in own]
        return [Judgment(task, verdict) for task, verdict in zip(tasks, judge(tasks), strict=True)]

    if not settings.adaptive:
        return judge_all(matches)
    run_ids, found, judged = [one.run_id for one in sets], list[Judgment](), set[Match]()
    number = count_round(len(matches), len(run_ids))
    while len(run_ids) > 1:
        fit = fit_ratings(count_outcomes(found, run_ids).sum((0, 1)), settings.both_orders)
        chosen = choose_matches(matches, judged, run_ids, fit, number)
        if not chosen:
            break
        found += judge_all(chosen)
        judged.update(chosen)
    return found


def count_outcomes(judgments: Sequence[Judgment], run_ids: Sequence[str]) -> Floats:
    """Count the outcomes: float64[narratives, repeats, 3, runs, runs], by the run that was shown first.

    With several repeats, each counts as its share of a battle.
    """
    place = {name: row for row, name in enumerate(run_ids)}
    topics = {name: row for row, name in enumerate(sorted({one.task.topic_id for one in judgments}))}
    repeats = 1 + max((one.task.repeat for one in judgments), default=0)
    counts = np.zeros((len(topics), repeats, 3, len(run_ids), len(run_ids)))
    for one in judgments:
        if not isinstance(one.verdict, Failure):
            outcome = PLACES[one.verdict]
            counts[topics[one.task.topic_id], one.task.repeat, outcome, place[one.task.a], place[one.task.b]] += 1
    return counts / repeats


@dataclass(frozen=True, slots=True)
class Standing:
    """A run in a leaderboard. Intervals hold 95 %; NaN where they cannot be computed."""

    rank: int
    run_id: str
    rating: float
    interval: tuple[float, float]
    """By bootstrap over narratives and repeats."""
    sandwich: tuple[float, float]
    """By the sandwich of arena-rank, which takes battles as independent."""
    battles: int
    wins: int
    losses: int
    ties: int


@dataclass(frozen=True, slots=True)
class SlotBias:
    """What it is worth to be shown first: the share of verdicts for A, a tie counting half, and the fitted term.

    `gamma` is None where each pair is judged once, as the track does. `p` is that of the likelihood-ratio test of
    gamma against 0, with one degree of freedom; it takes battles as independent.
    """

    share: float
    interval: tuple[float, float]
    gamma: float | None = None
    gamma_interval: tuple[float, float] = (math.nan, math.nan)
    p: float = math.nan


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """What comes of a tournament: the standings by rank, the bias of slots, and what the ratings rest on."""

    standings: tuple[Standing, ...]
    slots: SlotBias
    judge: str
    narratives: int
    judged: int
    failed: int
    ridge: float
    """The weight of the ridge that keeps ratings finite; 0 if none was needed."""
    groups: tuple[tuple[str, ...], ...]
    """The groups of runs within which wins and ties lead to and fro. More than one: the ridge ranks them."""


def make_leaderboard(judgments: Sequence[Judgment], run_ids: Sequence[str], judge: str) -> Leaderboard:
    """Make the leaderboard of these runs. Battles without a verdict are left out; a run without a battle has 1000.

    The first-slot term is fitted if any pair was judged in both orders on a narrative.
    """
    ids = sorted(run_ids)
    by_topic = count_outcomes(judgments, ids)
    counts = by_topic.sum((0, 1)) if len(by_topic) else np.zeros((3, len(ids), len(ids)))
    with_slot = any(one.task.swapped for one in judgments)
    fit = fit_ratings(counts, with_slot)
    widths = find_sandwich_widths(counts, fit) if counts.any() else np.full(len(ids), np.nan)
    kept = by_topic[by_topic.any((1, 2, 3, 4))] if len(by_topic) else np.zeros((0, 1, 3, len(ids), len(ids)))
    intervals, of_gamma = find_bootstrap_intervals(kept, with_slot)
    ratings, outcomes = fit.ratings, _count(judgments)
    standings = []
    for rank, row in enumerate(sorted(range(len(ids)), key=lambda row: (-round(float(ratings[row]), 9), ids[row])), 1):
        won, lost, tied = (outcomes[ids[row], outcome] for outcome in ("won", "lost", "tied"))
        known = 1.0 if won + lost + tied else math.nan
        low, high = known * intervals[row]
        half = known * float(widths[row])
        rating = float(ratings[row])
        sandwich = rating - half, rating + half
        battles = won + lost + tied
        standings.append(
            Standing(rank, ids[row], rating, (float(low), float(high)), sandwich, battles, won, lost, tied)
        )
    failed = sum(isinstance(one.verdict, Failure) for one in judgments)
    if not all(one.task.topic_id for one in judgments):  # counts of pairs, without narratives and slots
        kept = kept[:0]
    slots = _find_slot_bias(kept, fit if with_slot else None, of_gamma)
    groups = tuple(tuple(ids[row] for row in group) for group in find_groups(counts)) if fit.ridge else ()
    return Leaderboard(tuple(standings), slots, judge, len(kept), len(judgments) - failed, failed, fit.ridge, groups)


def _count(judgments: Sequence[Judgment]) -> Counter[tuple[str, str]]:
    """Count what each run won, lost and tied, by run and outcome."""
    found = Counter[tuple[str, str]]()
    for one in judgments:
        if not isinstance(one.verdict, Failure):
            for name in (one.task.a, one.task.b):
                found[name, "tied" if one.winner is None else "won" if one.winner == name else "lost"] += 1
    return found


def _find_slot_bias(by_topic: Floats, fit: Fit | None, interval: Floats) -> SlotBias:
    counts, outcomes = by_topic.sum((0, 1)), by_topic.sum((1, 3, 4))
    shares = (outcomes[:, WON] + outcomes[:, TIED] / 2) / outcomes.sum(1)
    total = counts.sum((1, 2))
    share = float((total[WON] + total[TIED] / 2) / total.sum()) if total.any() else math.nan
    of_share = find_bootstrap_interval(shares)
    if fit is None:
        return SlotBias(share, of_share)
    from scipy.stats import chi2

    ratio = 2 * (fit.log_likelihood - fit_ratings(counts, ridge=fit.ridge).log_likelihood)
    low, high = interval.tolist()
    return SlotBias(share, of_share, fit.gamma, (low, high), float(chi2.sf(max(ratio, 0), 1)))
