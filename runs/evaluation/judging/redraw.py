"""Measures of a run with the judge's grades drawn anew, from the record beside a file of judgments.

A judge's grade tells the true grade only with some probability. A draw replaces each grade by a true grade with that
probability, and the module takes the measure again. This is multiple imputation (Cole, Chu and Greenland, International
Journal of Epidemiology 2006). The probabilities come from a confusion matrix, or from repeats of the judge (Dawid and
Skene, Applied Statistics 1979). Each draw takes topics with replacement, for the probabilities and for the mean alike.

A high grade is right more often at the first ranks, where relevant documents are frequent. So each band of ranks has
probabilities of its own. The probabilities of all ranks support a band that has few documents.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import hash_file
from keystone.runs.evaluation.circular import JudgeRecord, name_record, read_record
from keystone.runs.evaluation.evaluate import evaluate
from keystone.runs.evaluation.measures import LEAST_AP, Measure, is_geometric
from keystone.runs.pipeline.grade_files import read_judgments
from keystone.runs.trec.arrays import Floats, Ints
from keystone.runs.trec.collections import find_qrels_file
from keystone.runs.trec.doc_ids import match_ids
from keystone.runs.trec.run_files import drop_own_documents, read_qrels, read_unsorted_run, sort_as_trec_eval
from keystone.runs.trec.types import Qrels, Run, pair_bounds, sort_qrels

ITERATIONS = 50
"""How many steps estimate the probabilities behind repeats."""
CORRECT_SHARE = 0.8
"""The share of right grades at which that estimate begins."""
SMOOTHING_COUNT = 0.01
"""The count that is added to each cell, so that no probability is 0."""
SUPPORT_COUNT = 2
"""How many documents of all ranks support each band of ranks."""


def draw_topics(topics: int, draws: int, rng: np.random.Generator) -> Ints:
    """Draw topics with replacement; returns how often each draw has each topic: int64[draws, topics]."""
    return rng.multinomial(topics, np.full(topics, 1 / topics), size=draws)


def find_bands(ranks: Ints) -> Ints:
    """Find the band of each rank (int64[...]): ranks 1, 2 to 3, 4 to 7 and so on. Rank 0 is no rank, and has band 0."""
    return np.asarray(np.frexp(ranks)[1], dtype=np.int64)


def tabulate_confusion(counts: Ints, drawn: Ints) -> Floats:
    """Tabulate the probability of each true grade given the judge's grade: float64[draws, bands, judged, true].

    `counts` is int64[topics, bands, judged, true]: documents with both grades. If a grade of the judge was never
    compared in the topics of a draw, it counts as right.
    """
    compared = np.tensordot(drawn, counts, 1).astype(np.float64)
    overall = compared.sum(axis=1, keepdims=True)
    unknown = overall.sum(axis=3, keepdims=True) == 0
    tables = compared + SUPPORT_COUNT * _normalise(np.where(unknown, np.eye(counts.shape[3]), overall))
    return _normalise(tables)


def tabulate_repeats(patterns: Ints, counts: Ints, drawn: Ints) -> Floats:
    """Tabulate the probability of each true grade given all grades: float64[draws, bands, patterns, true].

    `patterns` is int64[patterns, grades]: how often each grade occurs among the grades of a document. `counts` is
    int64[topics, bands, patterns]: the documents with that pattern. Each draw is estimated by expectation maximisation.
    The judge errs alike in all bands, and each band has its own shares of true grades.
    """
    size = patterns.shape[1]
    weights = np.tensordot(drawn, counts, 1).astype(np.float64)[..., None]
    spread = (1 - CORRECT_SHARE) / max(size - 1, 1)
    rates = np.where(np.eye(size, dtype=bool), CORRECT_SHARE, spread)[None]
    shares = _support(weights[..., 0] @ patterns)
    for _ in range(ITERATIONS):
        chances = patterns @ np.log(_normalise(rates)).swapaxes(1, 2)
        logs = np.log(shares)[:, :, None] + chances[:, None]
        posterior = _normalise(np.exp(logs - logs.max(axis=3, keepdims=True)))
        weighted = posterior * weights
        shares = _support(weighted.sum(axis=2))
        rates = weighted.sum(axis=1).swapaxes(1, 2) @ patterns + SMOOTHING_COUNT
    return posterior


def _normalise(counts: Floats) -> Floats:
    """Divide by the sums over the last axis."""
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True), dtype=np.float64)


def _support(counts: Floats) -> Floats:
    """Turn counts of grades (float64[draws, bands, grades]) into shares, with the support of all bands."""
    return _normalise(counts + SUPPORT_COUNT * _normalise(counts.sum(axis=1, keepdims=True) + SMOOTHING_COUNT))


def draw_grades(table: Floats, patterns: Ints, uniform: Floats) -> Ints:
    """Draw the place of the true grade of each judgment: int64[judgments].

    `table` is one draw of the probabilities. `patterns` (int64[judgments]) has the row of each judgment in it.
    `uniform` (float64[judgments]) has the random number of each judgment, from 0 to 1. If draws share these numbers,
    they differ only by their tables. Since the topics already vary by the noise of single grades, this noise does not
    count twice.
    """
    steps = np.cumsum(table, axis=1)[:, :-1]
    return np.asarray((uniform[:, None] > steps[patterns]).sum(axis=1))


def find_interval_over_judges(values: Floats, drawn: Ints) -> tuple[float, float]:
    """Find the 95 % interval of a mean over topics and judges by the percentiles of all draws.

    `values` is float64[draws, topics]. NaN marks topics that do not count; fewer than two topics give NaN. Percentiles
    of a bootstrap are too narrow for few topics, so they are expanded (Hesterberg, The American Statistician 2015).
    """
    from scipy.stats import norm, t

    counted = ~np.isnan(values).all(axis=0)
    if (topics := int(counted.sum())) < 2:
        return float("nan"), float("nan")
    values, weights = np.nan_to_num(values[:, counted]), drawn[:, counted]
    weights = weights[kept := weights.any(axis=1)]
    tail = 100 * norm.cdf(np.sqrt(topics / (topics - 1)) * t.ppf(0.025, topics - 1))
    low, high = np.percentile((values[kept] * weights).sum(axis=1) / weights.sum(axis=1), (tail, 100 - tail)).tolist()
    return low, high


DRAWS = 400
"""The number of draws of topics and grades."""
SEED = 2025
LEAST_REPEATS = 3
"""Fewer repeats do not tell a judge's noise from differences between documents."""


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """The draws of a file of judgments: `drawn` topics, and the probabilities of true `grades` in `tables`.

    A table has a row for each pattern of grades in each band of ranks (see `noise`). `rows` (int64[judgments]) is the
    row of each judgment of `qrels`.
    """

    qrels: Qrels
    drawn: Ints
    grades: Ints
    tables: Floats
    rows: Ints


@dataclass(frozen=True, slots=True)
class JudgeInterval:
    """A mean that takes the judge's noise into account, and its 95 % interval over topics and judges."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class NoisyMeans:
    """The intervals of one run by measure, and of its differences from the first run (none for the first run)."""

    name: str
    means: dict[str, JudgeInterval]
    differences: dict[str, JudgeInterval]


def find_judge_intervals(
    paths: Sequence[Path], qrels: Path, measures: Sequence[Measure], skip_own: bool = False, condensed: bool = False
) -> list[NoisyMeans]:
    """Find intervals over topics and judges for run files, and for their differences from the first one.

    The arguments are those of `evaluate_files`. `UserError` if no record beside the judgments tells the noise.
    """
    runs = [drop_own_documents(run) if skip_own else run for run in map(read_unsorted_run, paths)]
    noise = read_noise(find_qrels_file(qrels), runs)
    found: list[NoisyMeans] = []
    first: dict[str, Floats] = {}
    for path, run in zip(paths, runs, strict=True):
        values = measure_draws(run, noise, measures, condensed)
        differences = {name: _summarise(own - first[name], noise) for name, own in values.items()} if first else {}
        means = {name: _summarise_means(name, own, noise) for name, own in values.items()}
        found.append(NoisyMeans(str(path), means, differences))
        first = first or values
    return found


def _summarise_means(measure: str, values: Floats, noise: Noise) -> JudgeInterval:
    """Summarise the values of a run. Those of `gm_map` are logarithms, and give the geometric mean."""
    found = _summarise(values, noise)
    if not is_geometric(measure):
        return found
    return JudgeInterval(math.exp(found.mean), math.exp(found.low), math.exp(found.high))


def _summarise(values: Floats, noise: Noise) -> JudgeInterval:
    counted = values[:, ~np.isnan(values).all(axis=0)]
    mean = float(np.nan_to_num(counted).mean()) if counted.size else float("nan")
    return JudgeInterval(mean, *find_interval_over_judges(values, noise.drawn))


def read_noise(qrels: Path, runs: Sequence[Run]) -> Noise:
    """Read the noise of a judge from the record beside its judgments, by bands of the best ranks in the runs.

    The record has a comparison with other judgments, or repeats. `UserError` if it has neither, if there is no record,
    or if the judgments have changed since.
    """
    record = read_record(qrels)
    if record is None:
        raise UserError(f"{name_record(qrels)}: no such file; expected the record that keystone judge writes")
    if record.sha256 != hash_file(qrels):
        raise UserError(f"{qrels}: has changed since {name_record(qrels)} was written; expected the same judgments")
    known = any(grade is not None for grade in record.compared)
    if not known and (record.repeats < LEAST_REPEATS or not record.grades):
        raise UserError(
            f"{name_record(qrels)}: tells no noise of the judge; expected judgments that keystone judge made with "
            f"--against, or with --repeats of {LEAST_REPEATS} or more"
        )
    judgments = read_judgments(qrels)
    for key, number in (("grades", len(record.grades)), ("compared", len(record.compared))):
        if number not in (0, len(judgments)):
            raise UserError(f"{name_record(qrels)}: {key}: found {number} for {len(judgments)} judgments")
    own = read_qrels(qrels)
    topics = sorted(own.query_ids)
    own = own.select(topics)
    line = {(judgment.query_id, judgment.doc_id): number for number, judgment in enumerate(judgments)}
    lines = np.array([line[topic_id, doc_id] for topic_id, doc_id, _ in own.list_rows()])
    topic = np.searchsorted(topics, [judgment.query_id for judgment in judgments])
    bands = np.zeros(len(judgments), dtype=np.int64)
    bands[lines] = find_bands(find_best_ranks(runs, own))
    drawn = draw_topics(len(topics), DRAWS, np.random.default_rng(SEED))
    tabulate = _tabulate_comparison if known else _tabulate_repeats
    grades = np.array([judgment.grade for judgment in judgments])
    grades, tables, patterns = tabulate(record, grades, topic, bands, drawn)
    rows = bands * tables.shape[2] + patterns
    return Noise(own, drawn, grades, tables.reshape(len(drawn), -1, len(grades)), rows[lines])


def find_best_ranks(runs: Sequence[Run], qrels: Qrels) -> Ints:
    """Find the best rank of each judged document in the runs, from 1: int64[judgments]. It is 0 if no run has it."""
    best = np.full(len(qrels.grades), np.iinfo(np.int64).max)
    for run in (sort_as_trec_eval(run.select(qrels.query_ids)) for run in runs):
        _, rows = match_ids(run.docs, pair_bounds(run.offsets), qrels.docs, pair_bounds(qrels.offsets))
        ranks = rows - np.repeat(run.offsets[:-1], np.diff(qrels.offsets)) + 1
        best = np.where(rows < 0, best, np.minimum(best, ranks))
    return np.where(best == np.iinfo(np.int64).max, 0, best)


def _tabulate_comparison(
    record: JudgeRecord, judged: Ints, topic: Ints, bands: Ints, drawn: Ints
) -> tuple[Ints, Floats, Ints]:
    compared = np.array([grade is not None for grade in record.compared])
    true = np.array([grade for grade in record.compared if grade is not None])
    grades = np.unique(np.concatenate([judged, true]))
    patterns = np.searchsorted(grades, judged)
    counts = np.zeros((drawn.shape[1], bands.max() + 1, len(grades), len(grades)), dtype=np.int64)
    cells = topic[compared], bands[compared], patterns[compared], np.searchsorted(grades, true)
    np.add.at(counts, cells, 1)
    return grades, tabulate_confusion(counts, drawn), patterns


def _tabulate_repeats(
    record: JudgeRecord, _judged: Ints, topic: Ints, bands: Ints, drawn: Ints
) -> tuple[Ints, Floats, Ints]:
    grades = np.unique([grade for own in record.grades for grade in own])
    rows = np.array([[own.count(grade) for grade in grades.tolist()] for own in record.grades])
    known, patterns = np.unique(rows, axis=0, return_inverse=True)
    patterns = patterns.reshape(-1)
    counts = np.zeros((drawn.shape[1], bands.max() + 1, len(known)), dtype=np.int64)
    np.add.at(counts, (topic, bands, patterns), 1)
    return grades, tabulate_repeats(known, counts, drawn), patterns


def measure_draws(run: Run, noise: Noise, measures: Sequence[Measure], condensed: bool = False) -> dict[str, Floats]:
    """Measure a run on the grades of each draw: float64[draws, topics] for each measure.

    In a draw without a relevant document, the values of `gm_map` are the lowest: the logarithm of `LEAST_AP`.
    """
    own = noise.qrels
    uniform = np.random.default_rng(SEED).random(len(own.grades))
    lowest = {str(measure): math.log(LEAST_AP) if is_geometric(str(measure)) else 0.0 for measure in measures}
    values = {name: np.full((len(noise.drawn), len(own.query_ids)), low) for name, low in lowest.items()}
    least = min(measure.relevant_from * measure.of_relevance for measure in measures)
    for number, table in enumerate(noise.tables):
        grades = noise.grades[draw_grades(table, noise.rows, uniform)]
        if grades.max() < least:
            continue
        drawn = sort_qrels(own.query_ids, own.offsets, own.docs, grades)
        for name, row in evaluate(run.tag, run, drawn, measures, condensed).values.items():
            values[name][number] = row
    for name, rows in values.items():
        if is_geometric(name) and not (unknown := np.isnan(rows).all(axis=1)).all():
            rows[unknown] = lowest[name]
    return values
