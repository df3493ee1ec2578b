"""A tournament of answers: which battles are judged, and the leaderboard that their verdicts give.

A battle is about two answers to a narrative, one of which is shown first. Its id and its order are those of the track's
evaluator (castorini/RAGDoll at 1f06719).

Fewer calls find the order of runs if they judge the matches whose outcomes say most about it. Each round takes the
ratings of the battles before it. The more doubtful the order of two neighbours is, and the more a match narrows their
difference, the sooner it is judged. A judged match narrows differences by a rank-one update of the covariance,
whatever its outcome: this is sequential design for the Bradley-Terry model (as for D-optimality, but for the order).
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from keystone.generation.grading.rate_answers import ArenaVerdict
from keystone.generation.types import Failure
from keystone.runs.evaluation.agreement import rank_means
from keystone.runs.evaluation.arena.answers import AnswerSet
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
from keystone.runs.evaluation.resample import find_bootstrap_interval
from keystone.runs.trec.arrays import Floats

SEED = 13
"""The seed of the order of two answers."""
DECIMALS = 6
"""The decimals of rates and ratings in the files of an arena."""


@dataclass(frozen=True, slots=True)
class Task:
    """One battle: two runs in the order of their files, a narrative, and the run that is shown first, as A.

    `repeat` counts from 0 if the same battle is judged several times.
    """

    left: str
    right: str
    topic_id: str
    a: str
    repeat: int = 0
    swapped: bool = False
    """Whether this is the second battle of a pair, in the other order."""

    @property
    def b(self) -> str:
        """The run that is shown second."""
        return self.right if self.a == self.left else self.left

    @property
    def id(self) -> str:
        """The track's id of the battle. A swapped or repeated battle, which the track does not know, has an ending."""
        ending = (":swapped" if self.swapped else "") + (f":{self.repeat + 1}" if self.repeat else "")
        return f"arena:{self.left}:{self.right}:{self.topic_id}{ending}"


class Match(NamedTuple):
    """Two runs, in the order of their files, that both answer a narrative. A tournament chooses among matches."""

    left: str
    right: str
    topic_id: str


def list_matches(sets: Sequence[AnswerSet]) -> list[Match]:
    """List all pairs of runs on all narratives that both answer."""
    return [
        Match(left.run_id, right.run_id, topic_id)
        for left, right in combinations(sets, 2)
        for topic_id in sorted(left.texts.keys() & right.texts.keys())
    ]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a tournament is played. The defaults are those of the track's evaluator."""

    seed: int = SEED
    both_orders: bool = False
    """Whether each pair is judged in both orders, and the advantage of the first slot fitted."""
    repeats: int = 1
    """How often each battle is judged, by sampled replies."""
    adaptive: bool = False
    """Whether only the matches that say most about the order are judged, at most half of all."""


def list_tasks(matches: Iterable[Match], settings: Settings) -> Iterator[Task]:
    """List the battles of matches: one in the track's order, or one in each order, each of them `repeats` times."""
    for match in matches:
        first = choose_first(settings.seed, *match)
        other = match.right if first == match.left else match.left
        for repeat in range(settings.repeats):
            yield Task(*match, first, repeat)
            if settings.both_orders:
                yield Task(*match, other, repeat, swapped=True)


def choose_first(seed: int, left: str, right: str, topic_id: str) -> str:
    """Choose the run that is shown first: the left one if the first byte of a hash is even.

    The hash is the SHA-256 of the seed, both runs in sorted order and the topic, with a NUL between them.
    """
    key = "\0".join([str(seed), min(left, right), max(left, right), topic_id])
    return right if sha256(key.encode("utf-8", "surrogatepass")).digest()[0] % 2 else left


MOST_SHARE = 0.5
"""The largest share of all matches that is judged."""
ROUNDS = 12
"""The number of rounds in which this share is judged. More rounds choose better, but wait more often for replies."""
SURE = 3.0
"""When the differences of all neighbours are this many standard errors from 0, no further match is judged."""
PRIOR_PRECISION = 0.1
"""The precision of a rating before any battle."""


def choose_matches(
    matches: Sequence[Match], judged: set[Match], run_ids: Sequence[str], fit: Fit, number: int
) -> list[Match]:
    """Choose up to `number` matches that are not judged yet; none once the order is sure.

    For a chosen pair, the narrative with the fewest judged matches comes first. Ties keep the order of `matches`.
    """
    place = {name: row for row, name in enumerate(run_ids)}
    left: dict[tuple[int, int], list[Match]] = {}
    fought = np.zeros((len(run_ids), len(run_ids)))
    for match in matches:
        pair = place[match.left], place[match.right]
        if match in judged:
            fought[pair] += 1
        else:
            left.setdefault(pair, []).append(match)
    number = min(number, int(len(matches) * MOST_SHARE) - len(judged))
    covariance = _find_covariance(fought, fit)
    pairs, order, gaps = list(left), np.argsort(-fit.theta, kind="stable"), len(run_ids) - 1
    one, other = np.array([*pairwise(order), *pairs], np.intp).T  # neighbours, then pairs
    apart = fit.theta[one] - fit.theta[other]
    variance = covariance[one, one] + covariance[other, other] - 2 * covariance[one, other]
    if judged and (apart[:gaps] >= SURE * np.sqrt(variance[:gaps])).all():
        return []
    shared = covariance[:, one[gaps:]] - covariance[:, other[gaps:]]
    shared = shared[one[:gaps]] - shared[other[:gaps]]  # the covariance of each neighbours' difference and each pair's
    weight = 1 / (2 + 2 * np.cosh(apart[gaps:]))
    used = Counter(match.topic_id for match in judged)
    chosen, closed = list[Match](), list[int]()
    while len(chosen) < number and left:
        # The more standard errors a difference is from 0, the less it is worth to narrow it, by the normal density.
        doubts = np.exp(-(apart[:gaps] ** 2) / (2 * variance[:gaps])) / variance[:gaps] ** 1.5
        share = weight / (1 + weight * variance[gaps:])
        gains = doubts @ shared**2 * share
        gains[closed] = -1
        best = int(gains.argmax())
        free = left[pairs[best]]
        match = min(free, key=lambda match: used[match.topic_id])
        free.remove(match)
        chosen.append(match)
        used[match.topic_id] += 1
        # A match narrows the covariance by a matrix of rank one, and with it all that is computed from it.
        narrowed = covariance[:, one[gaps + best]] - covariance[:, other[gaps + best]]
        differences = narrowed[one] - narrowed[other]
        covariance -= share[best] * narrowed[:, None] * narrowed
        variance -= share[best] * differences**2
        shared -= share[best] * differences[:gaps, None] * differences[gaps:]
        if not free:
            del left[pairs[best]]
            closed.append(best)
    return chosen


def _hash(match: Match) -> bytes:
    return sha256("\0".join([match.left, match.right, match.topic_id]).encode("utf-8", "surrogatepass")).digest()


def _find_covariance(fought: Floats, fit: Fit) -> Floats:
    p = 1 / (1 + np.exp(fit.theta - fit.theta[:, None]))
    weights = (fought + fought.T) * p * (1 - p)
    information = np.diag(weights.sum(1)) - weights + PRIOR_PRECISION * np.eye(len(p))
    return np.asarray(np.linalg.inv(information))


TIES: Collection[str] = ("Tie", "Tie (Both Bad)")
PLACES: Mapping[str, int] = {"A": WON, "B": LOST, **dict.fromkeys(TIES, TIED)}
"""The place of a verdict in counts, for the run that is shown first."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """A battle with its verdict, or the reason why it has none."""

    task: Task
    verdict: ArenaVerdict | Failure

    @property
    def winner(self) -> str | None:
        """The run that is preferred; None for a tie and for a missing verdict."""
        return {"A": self.task.a, "B": self.task.b}.get(str(self.verdict))


Judge = Callable[[Sequence[Task]], Sequence[ArenaVerdict | Failure]]
"""Gives each battle a verdict, or the reason why it has none."""


def play(sets: Sequence[AnswerSet], judge: Judge, settings: Settings) -> list[Judgment]:
    """Play a tournament of the runs of `sets`: all matches, or those that `choose_matches` takes, round by round."""
    matches = list_matches(sets)

    def judge_all(chosen: Sequence[Match]) -> list[Judgment]:
        tasks = list(list_tasks(chosen, settings))
        return [Judgment(task, verdict) for task, verdict in zip(tasks, judge(tasks), strict=True)]

    if not settings.adaptive:
        return judge_all(matches)
    run_ids, found, judged = [one.run_id for one in sets], list[Judgment](), set[Match]()
    matches.sort(key=_hash)
    # A round has a twelfth of the matches that may be judged, and at least one for each run.
    number = max(len(run_ids), -(-int(len(matches) * MOST_SHARE) // ROUNDS))
    counts = np.zeros((3, len(run_ids), len(run_ids)))
    while len(run_ids) > 1:
        chosen = choose_matches(matches, judged, run_ids, fit_ratings(counts, settings.both_orders), number)
        if not chosen:
            break
        judgments = judge_all(chosen)
        counts += count_outcomes(judgments, run_ids).sum((0, 1))
        found += judgments
        judged.update(chosen)
    return found


def count_outcomes(judgments: Sequence[Judgment], run_ids: Sequence[str]) -> Floats:
    """Count the outcomes: float64[narratives, repeats, 3, runs, runs], by the run that was shown first.

    With several repeats, each counts as its share of a battle. Where a battle has fewer than others, the verdicts that
    it has share the weight of those that it lacks.
    """
    place = {name: row for row, name in enumerate(run_ids)}
    topics = {name: row for row, name in enumerate(sorted({one.task.topic_id for one in judgments}))}
    repeats = 1 + max((one.task.repeat for one in judgments), default=0)
    own_repeats = dict[tuple[str, str, str], int]()
    for task in (one.task for one in judgments):
        battle = task.a, task.b, task.topic_id
        own_repeats[battle] = max(own_repeats.get(battle, 0), 1 + task.repeat)
    counts = np.zeros((len(topics), repeats, 3, len(run_ids), len(run_ids)))
    for one in judgments:
        if not isinstance(one.verdict, Failure):
            task, outcome = one.task, PLACES[one.verdict]
            own = counts[topics[task.topic_id], :, outcome, place[task.a], place[task.b]]
            number = own_repeats[task.a, task.b, task.topic_id]
            own[task.repeat] += 1
            own[number:] += 1 / number
    return counts / repeats


@dataclass(frozen=True, slots=True)
class Standing:
    """A run in a leaderboard. Intervals hold 95 %; NaN where they cannot be computed."""

    rank: int
    """Runs whose ratings are equal to `DECIMALS` decimals share the first of their ranks."""
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
    """What being shown first is worth: the share of verdicts for A, where a tie counts half, and the fitted term.

    `gamma` is None where each pair is judged once, as the track does. `p` is from the likelihood-ratio test of
    gamma against 0, with one degree of freedom, which takes battles as independent.
    """

    share: float
    interval: tuple[float, float]
    gamma: float | None = None
    gamma_interval: tuple[float, float] = (math.nan, math.nan)
    p: float = math.nan


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The outcome of a tournament: the standings by rank, the bias of slots, and what the ratings rest on."""

    standings: tuple[Standing, ...]
    slots: SlotBias
    judge: str
    narratives: int
    judged: int
    failed: int
    ridge: float
    """The weight of the ridge that keeps ratings finite; 0 if none was needed."""
    groups: tuple[tuple[str, ...], ...]
    """The groups of runs that wins and ties connect both ways. If there are several, the ridge ranks them.

    Empty without a ridge. If there is one group, the ridge bounds the first-slot term.
    """
    linked: bool
    """Whether battles link all runs that had battles. Otherwise the ridge alone compares their ratings."""


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
    rounded = np.round(ratings, DECIMALS).tolist()
    ranks = rank_means(rounded)
    standings = []
    for row in sorted(range(len(ids)), key=lambda row: (-rounded[row], ids[row])):
        won, lost, tied = (outcomes[ids[row], outcome] for outcome in ("won", "lost", "tied"))
        known = 1.0 if won + lost + tied else math.nan
        low, high = known * intervals[row]
        half = known * float(widths[row])
        rating = float(ratings[row])
        sandwich = rating - half, rating + half
        battles = won + lost + tied
        standings.append(
            Standing(ranks[row], ids[row], rating, (float(low), float(high)), sandwich, battles, won, lost, tied)
        )
    failed = sum(isinstance(one.verdict, Failure) for one in judgments)
    if not all(one.task.topic_id for one in judgments):  # counts of pairs, without narratives and slots
        kept = kept[:0]
    slots = _find_slot_bias(kept, fit if with_slot else None, of_gamma)
    groups = tuple(tuple(ids[row] for row in group) for group in find_groups(counts)) if fit.ridge else ()
    linked = sum(len(group) > 1 for group in find_groups(counts + counts.transpose(0, 2, 1))) < 2
    return Leaderboard(
        tuple(standings), slots, judge, len(kept), len(judgments) - failed, failed, fit.ridge, groups, linked
    )


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
