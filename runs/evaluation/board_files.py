"""Leaderboards that `keystone evaluate` wrote, as CSV or JSON, and the agreement of two of them."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.io.reading import open_binary, read_text
from keystone.runs.evaluation.agreement import compute_plain_tau, compute_tau, compute_tau_ap
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.trec.collections import find_folder, is_data_set

Board = dict[str, dict[str, float]]
"""Measure -> run -> mean."""

_JSON = re.compile(rb'\s*\{\s*"(runs|command)"\s*:')
_CSV = re.compile(rb"(rank,)?run( \(condensed lists\))?,")
_HEAD_BYTES = 200
_OTHER_COLUMNS = ("rank", "run", "team", "95 % low", "95 % high", "ties by Tukey")


def read_board(path: Path) -> Board | None:
    """Read a leaderboard; None if the file, folder or data set is none.

    `UserError` with the line of a mean that is no number and of a run that stands there twice.
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


@dataclass(frozen=True, slots=True)
class BoardAgreement:
    """How far two leaderboards put the same runs in the same order by a measure."""

    measure: str
    runs: int
    """The runs with a mean in both."""
    tau: float
    """Kendall's tau, to which a tie counts as neither order."""
    tau_b: float
    """Kendall's tau-b, corrected for ties."""
    tau_ap: float
    """tau_AP, with the first leaderboard as reference."""


def list_means(evaluations: Sequence[Evaluation]) -> Board:
    """List the means of runs as a leaderboard."""
    return {name: {one.name: one.mean(name) for one in evaluations} for name in evaluations[0].values}


def compare_boards(first: Board, second: Board) -> list[BoardAgreement]:
    """Compare two leaderboards by each measure of quality that both have. There may be none.

    The share of judged documents is no measure of quality.
    """
    found = []
    for measure, own in first.items():
        other = second.get(measure)
        if other is None or measure.startswith("judged@"):
            continue
        pairs = [(own[run], other[run]) for run in own if run in other]
        a, b = np.array([pair for pair in pairs if not np.isnan(pair).any()], dtype=float).reshape(-1, 2).T
        taus = compute_plain_tau(a, b), compute_tau(a, b), compute_tau_ap(a, b)
        found.append(BoardAgreement(measure, len(a), *taus))
    return found
