"""Agreement of judges and of leaderboards: confusion, Cohen's kappa, Kendall's tau, tau-b and tau_AP."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.io.reading import open_binary, read_text
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.trec.arrays import Floats, Ints
from keystone.runs.trec.collections import find_folder, is_data_set
from keystone.runs.trec.doc_ids import match_ids
from keystone.runs.trec.types import Qrels, pair_bounds

Weights = Literal["none", "linear", "quadratic"]
DRAWS = 2_000
"""The number of bootstrap samples of topics behind an interval of tau."""
SEED = 2007


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """The documents that both judged: `counts` is int64[g, g], a row for each grade of the first judge.

    Its columns are the grades of the second judge. Both are in the order of `grades`.
    """

    grades: tuple[int, ...]
    counts: Ints

    def compute_kappa(self, weights: Weights = "none") -> float:
        """Compute Cohen's kappa (Educational and Psychological Measurement 1960); NaN if chance alone agrees.

        With `weights`, a disagreement counts by the distance of its grades, or by the square of that distance (Cohen,
        Psychological Bulletin 1968). The distance is that of places in the order of `grades`.
        """
        total = int(self.counts.sum())
        if not total:
            return float("nan")
        places = np.arange(len(self.counts))
        distance = np.abs(places[:, None] - places) / max(len(places) - 1, 1)
        credit = {"none": distance == 0, "linear": 1 - distance, "quadratic": 1 - distance**2}[weights]
        expected = float((credit * np.outer(self.counts.sum(axis=1), self.counts.sum(axis=0))).sum()) / total**2
        observed = float((credit * self.counts).sum()) / total
        return (observed - expected) / (1 - expected) if expected < 1 else float("nan")

    def compute_binary_kappa(self, relevant_from: int) -> float:
        """Compute Cohen's kappa of relevant documents, from the grade `relevant_from` on, and others."""
        relevant = (np.array(self.grades) >= relevant_from).astype(np.int64)
        sides = np.stack([1 - relevant, relevant])
        return Agreement((0, 1), sides @ self.counts @ sides.T).compute_kappa()


def compare_judgments(first: Qrels, second: Qrels) -> Agreement:
    """Count the grades of all documents that both have judged for a topic. There may be no such document."""
    topics = sorted(set(first.query_ids) & set(second.query_ids))
    first, second = first.select(topics), second.select(topics)
    _, places = match_ids(first.docs, pair_bounds(first.offsets), second.docs, pair_bounds(second.offsets))
    return count_labels(first.grades[places[places >= 0]], second.grades[places >= 0])


def count_labels(first: Ints, second: Ints) -> Agreement:
    """Count the labels that two judges gave to the same items: int64[items] each."""
    grades, codes = np.unique(np.stack([first, second]), return_inverse=True)
    counts = np.zeros((len(grades), len(grades)), dtype=np.int64)
    np.add.at(counts, tuple(codes.reshape(2, -1)), 1)
    return Agreement(tuple(grades.tolist()), counts)


def settle_means(means: Sequence[float] | Floats) -> Floats:
    """Round means to 12 decimals, so that errors of their sums do not make equal ones differ."""
    return np.asarray(np.round(means, 12), dtype=np.float64)


def compute_tau(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> float:
    """Compute Kendall's tau-b between the scores of the same systems by two judges; NaN if one gives no order.

    Without ties, it is Kendall's tau. A system with NaN in one of the two is left out.
    """
    from scipy.stats import kendalltau

    a, b = settle_means(first), settle_means(second)
    known = ~(np.isnan(a) | np.isnan(b))
    return float(kendalltau(a[known], b[known]).statistic) if known.sum() > 1 else float("nan")


def rank_means(means: Sequence[float]) -> list[int]:
    """Rank the means of runs from 1, the highest first. Equal means share the first of their ranks. NaN comes last."""
    known = np.nan_to_num(settle_means(means), nan=-np.inf)
    return [1 + int((known > mean).sum()) for mean in known]


def compute_plain_tau(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> float:
    """Compute Kendall's tau (tau-a): pairs in the same order minus pairs in opposite order, of all pairs.

    A pair that is tied in either counts as neither. NaN for fewer than two systems.
    """
    a, b = settle_means(first), settle_means(second)
    pairs = len(a) * (len(a) - 1)
    orders = np.sign(a[:, None] - a) * np.sign(b[:, None] - b)
    return float(orders.sum() / pairs) if pairs else float("nan")


def compute_tau_ap(reference: Sequence[float] | Floats, predicted: Sequence[float] | Floats) -> float:
    """Compute tau_AP (Yilmaz, Aslam and Robertson, SIGIR 2008) of scores of the same systems; NaN for fewer than two.

    It is Kendall's tau with more weight on the first ranks of `predicted`. Each system below the first has the share of
    the systems above it that the reference also ranks above it. Twice the mean of these shares, minus 1, is tau_AP. A
    system that is tied in `predicted` is compared with those above its tie. If all systems are tied, it is NaN. A tie
    in the reference counts as the wrong order. A system with NaN in one of the two is left out.
    """
    ref, own = settle_means(reference), settle_means(predicted)
    known = ~(np.isnan(ref) | np.isnan(own))
    ref, own = ref[known], own[known]
    above = own[None, :] > own[:, None]
    count = above.sum(axis=1)
    ranked = count > 0
    if not ranked.any():
        return float("nan")
    kept = (above & (ref[None, :] > ref[:, None])).sum(axis=1)
    return float(2 * np.mean(kept[ranked] / count[ranked]) - 1)


def find_tau_interval(first: Floats, second: Floats) -> tuple[float, float]:
    """Find the 95 % interval of `compute_tau` of systems' means, by bootstrap samples of topics that both judges share.

    `first` and `second` are float64[systems, topics], of the same topics. NaN marks a value that was not measured.
    """
    topics = first.shape[1]
    if topics < 2 or len(first) < 2:
        return float("nan"), float("nan")
    drawn = np.random.default_rng(SEED).multinomial(topics, np.full(topics, 1 / topics), size=DRAWS)
    taus = [compute_tau(*pair) for pair in zip(_take_means(first, drawn), _take_means(second, drawn), strict=True)]
    low, high = np.nanpercentile(taus, (2.5, 97.5)).tolist() if np.isfinite(taus).any() else (np.nan, np.nan)
    return low, high


def _take_means(values: Floats, drawn: Ints) -> Floats:
    """Take the means of systems over the topics of each draw, NaN left out: float64[draws, systems]."""
    weights = drawn @ (~np.isnan(values)).T.astype(np.float64)
    return np.divide(drawn @ np.nan_to_num(values).T, weights, out=np.full_like(weights, np.nan), where=weights > 0)


Board = dict[str, dict[str, float]]
"""Measure -> run -> mean."""

_JSON = re.compile(rb'\s*\{\s*"(runs|command)"\s*:')
_JUDGED_SHARE = re.compile(r"judged@\d+")
_CSV = re.compile(rb"(rank,)?run( \(condensed lists\))?,")
_HEAD_BYTES = 200
_OTHER_COLUMNS = ("rank", "run", "team", "95 % low", "95 % high", "ties by Tukey")


def read_board(path: Path) -> Board | None:
    """Read a leaderboard; None if the file, folder or data set is something else.

    `UserError` with the line of a mean that is no number and of a run that occurs twice.
    """
    if is_data_set(path) or find_folder(path):
        return None
    with open_binary(path) as file:
        head = file.read(_HEAD_BYTES)
    if not (_JSON.match(head) or _CSV.match(head)):
        return None
    board: Board = {}
    for place, run, measure, mean in _list_json(path) if _JSON.match(head) else _list_csv(path):
        own = board.setdefault(measure, {})
        if run in own:
            raise UserError(f"{place}: found {measure} of {run} again; expected each run once")
        try:
            own[run] = float(mean) if mean not in (None, "") else float("nan")
        except (TypeError, ValueError):
            raise UserError(f"{place}: found {mean!r} as {measure} of {run}; expected a number") from None
    if not board:
        raise UserError(f"{path}: holds no mean; expected a leaderboard of keystone evaluate")
    return board


_Means = Iterator[tuple[str, str, str, Any]]
"""The place, the run, the measure and the mean."""


def _list_json(path: Path) -> _Means:
    try:
        report = parse_json(read_text(path))
        report = report.get("result", report)
        for run in report["runs"]:
            for measure, mean in run["mean"].items():
                yield str(path), str(run["name"]), measure, mean
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: expected `runs` with `name` and `mean` each, as keystone evaluate writes") from error


def _list_csv(path: Path) -> _Means:
    """List the cells of a leaderboard, with a column for each measure, or those of rows with one measure each."""
    rows = csv.reader(read_text(path).splitlines())
    head = [name.removesuffix(" (condensed lists)") for name in next(rows)]
    for cells in rows:
        place = f"{path}:{rows.line_num}"
        if len(cells) != len(head):
            raise UserError(f"{place}: found {len(cells)} columns; expected {len(head)}, as in the first line")
        row = dict(zip(head, cells, strict=True))
        run = row["run"].removesuffix("*")
        if {"measure", "mean"} <= row.keys():
            yield place, run, row["measure"], row["mean"]
        else:
            yield from ((place, run, name, mean) for name, mean in row.items() if name not in _OTHER_COLUMNS)


def list_means(evaluations: Sequence[Evaluation]) -> Board:
    """List the means of runs as a leaderboard."""
    return {name: {one.name: one.mean(name) for one in evaluations} for name in evaluations[0].values}


def compare_boards(first: Board, second: Board) -> list[dict[str, Any]]:
    """Compare two leaderboards by each measure of both, except the share of judged documents. The result may be empty.

    `runs` counts the runs with a mean in both. A tie counts as neither order to `tau`; `tau_b` is corrected for ties;
    `tau_ap` has the first leaderboard as reference.
    """
    found = []
    for measure, own in first.items():
        other = second.get(measure)
        if other is None or _JUDGED_SHARE.fullmatch(measure):
            continue
        pairs = [(own[run], other[run]) for run in own if run in other]
        a, b = np.array([pair for pair in pairs if not np.isnan(pair).any()], dtype=float).reshape(-1, 2).T
        taus = {"tau": compute_plain_tau(a, b), "tau_b": compute_tau(a, b), "tau_ap": compute_tau_ap(a, b)}
        found.append({"measure": measure, "runs": len(a), **taus})
    return found
