"""A leaderboard of runs, its topics, what ties, and what several judges say about it: pure functions of evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.agreement import rank_means
from keystone.runs.evaluation.compare import LEVEL, Difference, Pair, compare_all_pairs, find_letters, take_common
from keystone.runs.evaluation.evaluate import Evaluation

BEST = "best"
"""The name that makes the run with the highest mean the baseline."""


def sort_runs(evaluations: Sequence[Evaluation], measure: str) -> list[Evaluation]:
    """Sort runs by the mean of a measure, best first, and equal runs by name. A mean that is NaN comes last."""
    ranked = zip(rank_means([one.mean(measure) for one in evaluations]), evaluations, strict=True)
    return [one for _, one in sorted(ranked, key=lambda own: (own[0], own[1].name))]


def put_first(evaluations: Sequence[Evaluation], names: Mapping[str, str], baseline: str) -> list[Evaluation]:
    """Put the run that later ones are compared with first. `names` gives runs by file and by tag.

    `baseline` is `best`, for the first of sorted runs, or one of those names. `UserError` for any other.
    """
    if baseline == BEST:
        return list(evaluations)
    name = names.get(baseline, baseline)
    first = [one for one in evaluations if one.name == name]
    if len(first) != 1:
        raise UserError(f"--baseline {baseline}: expected best, or the file or tag of one of the runs")
    return [*first, *(one for one in evaluations if one is not first[0])]


@dataclass(frozen=True, slots=True)
class TopicRow:
    """The values of all runs on a topic by one measure: float64[runs], and what they tell about the topic."""

    topic: str
    mean: float
    deviation: float
    """The standard deviation over runs."""
    low: float
    median: float
    high: float
    best: str
    """The first run with the highest value."""
    values: tuple[float, ...]


def list_topics(evaluations: Sequence[Evaluation], measure: str) -> list[TopicRow]:
    """List the topics, hardest first: by the mean of all runs, then by id. Topics without a value come last."""
    values = np.stack([one.values[measure] for one in evaluations])
    rows = []
    for topic, own in zip(evaluations[0].topics, values.T, strict=True):
        if np.isnan(own).all():
            none = float("nan")
            rows.append(TopicRow(topic, none, none, none, none, none, "", tuple(own.tolist())))
            continue
        deviation = float(np.nanstd(own, ddof=1)) if np.isfinite(own).sum() > 1 else float("nan")
        low, median, high = map(float, np.nanquantile(own, (0, 0.5, 1)))
        best = evaluations[int(np.nanargmax(own))].name
        rows.append(TopicRow(topic, float(np.nanmean(own)), deviation, low, median, high, best, tuple(own.tolist())))
    return sorted(rows, key=lambda row: (np.nan_to_num(row.mean, nan=np.inf), row.topic))


def split_variance(evaluations: Sequence[Evaluation], measure: str) -> tuple[float, float, float]:
    """Split the sum of squares of `take_common` as a two-way analysis of variance does. NaN if all values are equal.

    Returns the share between runs, the share between topics, and the rest, their interaction.
    """
    _, values = take_common(evaluations, measure)
    total = float(((values - values.mean()) ** 2).sum()) if values.size else 0.0
    if not total:
        return float("nan"), float("nan"), float("nan")
    of_runs = float(values.shape[1] * ((values.mean(axis=1) - values.mean()) ** 2).sum()) / total
    of_topics = float(values.shape[0] * ((values.mean(axis=0) - values.mean()) ** 2).sum()) / total
    return of_runs, of_topics, max(1 - of_runs - of_topics, 0.0)


def keep_topics(evaluations: Sequence[Evaluation], measure: str, topics: Sequence[str]) -> list[Evaluation]:
    """Keep the values of a measure on these topics."""
    place = {topic: number for number, topic in enumerate(evaluations[0].topics)}
    own = [place[topic] for topic in topics]
    return [replace(one, topics=tuple(topics), values={measure: one.values[measure][own]}) for one in evaluations]


def draw_conclusion(difference: Difference) -> str:
    """Draw a conclusion about a later run: `better`, `worse` or `no difference`; `-` if there was no test."""
    if np.isnan(difference.p_randomisation):
        return "-"
    if difference.p_randomisation >= LEVEL:
        return "no difference"
    return "better" if difference.mean > 0 else "worse"


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
    for one, rank in zip(runs, rank_means([one.mean(measure) for one in runs]), strict=True):
        pair = against.get(one.name)
        ties = pair is None or not (pair.p_tukey < LEVEL or np.isnan(pair.difference))
        standings.append(Standing(one, rank, *one.interval(measure), ties, letters[one.name], pair))
    return Standings(measure, standings, list_topics(runs, measure))
