"""The join of what several evaluations say of the same runs to one table with a row for each run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keystone.runs.evaluation.arena.tournament import Leaderboard
from keystone.runs.evaluation.evaluate import Evaluation

Row = dict[str, str | int | float | None]
"""A run's row by the heads of the columns. None: the run has no such number."""

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "nuggets": {"V_strict": "V_strict", "A_strict": "A_strict"},
    "rubrics": {"rubric": "rubric", "rubric_binary": "rubric_binary"},
    "support": {
        f"{name}{kind}": f"support_{name}{kind}" for kind in ("", "_hard", "_all") for name in ("precision", "recall")
    },
}
"""The measures of a part of the sheet, each with the head of its column. Another part shows all of its measures."""
BATTLES = ("rating", "battles", "wins", "losses", "ties")
"""The columns of a tournament."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A run of the sheet: its number of answers, and of errors of validation; None if its form is that of no track."""

    run_id: str
    answers: int
    errors: int | None


def join_scores(
    entries: Sequence[Entry], evaluations: Mapping[str, Sequence[Evaluation]], board: Leaderboard | None = None
) -> list[Row]:
    """Join the means of evaluations, by the part of the sheet, and the ratings of a tournament to a row for each run.

    The names of evaluations are the ids of runs. The rows have the order of `entries`, and all have the same columns.
    """
    rows: list[Row] = [{"run": one.run_id, "answers": one.answers, "errors": one.errors} for one in entries]
    for part, found in evaluations.items():
        by_run = {one.name: one for one in found}
        measures = COLUMNS.get(part) or {name: name for one in found for name in one}
        for row in rows:
            own = by_run.get(str(row["run"]))
            row |= {head: _find_mean(own, measure) for measure, head in measures.items()}
    if board is not None:
        standings = {one.run_id: one for one in board.standings if one.battles}
        for row in rows:
            standing = standings.get(str(row["run"]))
            row |= {head: getattr(standing, head) if standing else None for head in BATTLES}
    return rows


def _find_mean(evaluation: Evaluation | None, measure: str) -> float | None:
    mean = math.nan if evaluation is None else float(evaluation.mean(measure))
    return None if math.isnan(mean) else mean
