"""Leaderboards, tables by topic, pairs of runs and judges as plain rows, and their printing in each form.

A score sheet is such a table, too. It is also written as `sheet.csv` and `sheet.json`.
"""

import csv
import io
import math
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from keystone.indexing.io.writing import write_whole
from keystone.runs.evaluation.agreement import Agreement, compute_tau, compute_tau_ap, find_tau_interval, rank_means
from keystone.runs.evaluation.batch import Batch, find_team
from keystone.runs.evaluation.bounds import Bounds
from keystone.runs.evaluation.compare import Difference, Pair, find_letters
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.leaderboard import (
    draw_conclusion,
    keep_topics,
    list_topics,
    split_variance,
)
from keystone.runs.report.say import align_columns
from keystone.runs.report.tables import escape_latex, escape_markdown, join_latex, join_markdown
from keystone.runs.report.terminal import format_mean, mark_circle, mark_lists
from keystone.runs.wording import escape_controls

if TYPE_CHECKING:
    from keystone.runs.evaluation.sheet import Row, Sheet

Rows = list[list[str | float]]
"""The head of a table, then its rows."""
INTERVAL_HEADS = ("95 % low", "95 % high")


def list_leaderboard(runs: Sequence[Evaluation], tags: dict[str, str], measure: str, pairs: Sequence[Pair]) -> Rows:
    """List sorted runs with rank, team if all tags name one, means, and the letters of pairs if there are any.

    The interval is that of the measure that sorts.
    """
    measures = list(runs[0].values)
    teams = [find_team(tags.get(one.name, "")) for one in runs]
    letters = find_letters([one.name for one in runs], pairs) if pairs else {}
    has_teams, letter_head = all(teams), ["ties by Tukey"] if letters else []
    before = ["rank", f"run{mark_lists(runs[0])}", *["team"] * has_teams]
    rows: Rows = [[*before, *measures, *INTERVAL_HEADS, *letter_head]]
    for rank, team, one in zip(rank_means([one.mean(measure) for one in runs]), teams, runs, strict=True):
        numbers = [*(one.mean(name) for name in measures), *one.interval(measure)]
        own = [letters[one.name]] if letters else []
        rows.append([str(rank), one.name + mark_circle(one), *[team] * has_teams, *numbers, *own])
    return rows


def list_topic_rows(runs: Sequence[Evaluation], measure: str) -> Rows:
    """List the topics, hardest first, with a column for each run."""
    rows: Rows = [["topic", "mean", "sd", "min", "median", "max", "best run", *(one.name for one in runs)]]
    for row in list_topics(runs, measure):
        numbers = [row.mean, row.deviation, row.low, row.median, row.high]
        rows.append([row.topic, *numbers, row.best, *row.values])
    return rows


def list_pairs(pairs: Sequence[Pair]) -> Rows:
    """List pairs of runs."""
    rows: Rows = [["first", "second", "difference", "wins", "ties", "losses", "p (Tukey HSD)", "p (t-test, Holm)"]]
    return rows + [
        [one.first, one.second, one.difference, str(one.wins), str(one.ties), str(one.losses), one.p_tukey, one.p_t]
        for one in pairs
    ]


def list_bounds(bounds: Sequence[Bounds]) -> Rows:
    """List the means with unjudged documents as not relevant and as relevant, and the residuals of RBP."""
    rows: Rows = [["run", "measure", "unjudged as 0", "unjudged as relevant", "residual"]]
    for one in bounds:
        for name, low in one.as_nonrelevant.items():
            rows.append([one.name, name, low, one.as_relevant[name], one.residual.get(name, float("nan"))])
    return rows


def list_judge_columns(batch: Batch, order: Sequence[str], measure: str) -> Rows:
    """List the mean of each run by each judge, and the mean of these. A run has a mark if any figure is circular."""
    rows: Rows = [["run", *map(str, batch.judges), "mean"]]
    by_name = [{one.name: one for one in own} for own in batch.evaluations]
    for name in order:
        judged = [own[name] for own in by_name]
        mark = max(map(mark_circle, judged))
        means = [one.mean(measure) for one in judged]
        rows.append([name + mark, *means, float(np.mean(means))])
    return rows


def list_judge_pairs(
    judges: Sequence[Path], evaluations: Sequence[Sequence[Evaluation]], agreements: Sequence[Agreement], measure: str
) -> Rows:
    """List pairs of judges: how they agree on the same documents, and on the order of runs by the topics of both.

    `evaluations` has the same runs by each judge, and `agreements` one for each pair. The interval is that of tau over
    bootstrap samples of topics.
    """
    rows: Rows = [["judges", "judged by both", "kappa", "kappa (quadratic)", "tau-b", *INTERVAL_HEADS, "tau_AP"]]
    for (i, j), agreement in zip(combinations(range(len(judges)), 2), agreements, strict=True):
        shared = sorted(set(evaluations[i][0].topics) & set(evaluations[j][0].topics))
        judged = [keep_topics(evaluations[number], measure, shared) for number in (i, j)]
        first, second = (np.stack([one.values[measure] for one in own]) for own in judged)
        means = [[one.mean(measure) for one in own] for own in judged]
        kappas = agreement.compute_kappa(), agreement.compute_kappa("quadratic")
        taus = compute_tau(*means), *find_tau_interval(first, second), compute_tau_ap(*means)
        rows.append([f"{judges[i]}, {judges[j]}", str(int(agreement.counts.sum())), *kappas, *taus])
    return rows


def list_conclusions(runs: Sequence[str], differences: Sequence[Sequence[Difference]], judges: Sequence[str]) -> Rows:
    """List what each judge says about each later run, by its differences from the first, and whether all agree."""
    rows: Rows = [["run", *judges, "holds"]]
    for run, *found in zip(runs, *differences, strict=True):
        verdicts = list(map(draw_conclusion, found))
        rows.append([run, *verdicts, "yes" if len({*verdicts}) == 1 and "-" not in verdicts else "no"])
    return rows


def list_differences(differences: list[dict[str, Any]]) -> Rows:
    """List the differences of later runs from the first one."""
    columns = {"mean": "difference", "low": "95 % low", "high": "95 % high", "effect": "Cohen's d"}
    columns |= {"p_t": "p (t-test)", "p_randomisation": "p (randomisation)"}
    rows: Rows = [["run", "measure", *columns.values()]]
    for one in differences:
        rows += [
            [one["second"], name, *(getattr(own, key) for key in columns)] for name, own in one["measures"].items()
        ]
    return rows


def summarise_variance(runs: Sequence[Evaluation], measure: str) -> str:
    """Say how much of the variance of a measure lies between runs and between topics."""
    of_runs, of_topics, rest = split_variance(runs, measure)
    shares = f"{of_runs:.0%} lies between runs, {of_topics:.0%} between topics, {rest:.0%} in the rest"
    return f"Of the variance of {measure}, {shares}."


def format_rows(rows: Rows, form: str) -> str:
    """Format a table as text, csv, markdown or latex. CSV has every digit; the others have four."""
    if form == "csv":
        out = io.StringIO()
        cells = [["" if isinstance(c, float) and np.isnan(c) else c for c in row] for row in rows]
        csv.writer(out, lineterminator="\n").writerows(cells)
        return out.getvalue().rstrip("\n")
    texts = [[format_mean(cell) if isinstance(cell, float) else cell for cell in row] for row in rows]
    if form == "markdown":
        return join_markdown([list(map(escape_markdown, row)) for row in texts])
    if form == "latex":
        return join_latex([list(map(escape_latex, row)) for row in texts])
    left = [i for i in range(len(rows[0])) if not any(isinstance(row[i], float) for row in rows[1:])]
    return "\n".join(align_columns(texts, left))


def make_objects(rows: Rows) -> list[dict[str, str | float]]:
    """Make an object of each row, for JSON."""
    head, *others = rows
    return [dict(zip(map(str, head), row, strict=True)) for row in others]


def print_rows(rows: Rows, form: str, title: str = "") -> None:
    """Print a table, in text and Markdown below its title."""
    if title and form in ("text", "markdown"):
        print(f"\n{title}")
    sys.stdout.write("\n".join(map(escape_controls, format_rows(rows, form).splitlines())) + "\n")


SHEET_CSV, SHEET_JSON, RAGDOLL_CSV = "sheet.csv", "sheet.json", "ragdoll.csv"
RAGDOLL_NAMES = {
    "run": "run_id",
    "V_strict": "strict_vital",
    "A_strict": "strict_all",
    "rubric": "ternary_score",
    "rubric_binary": "binary_score",
    "support_precision": "weighted_precision_first_citation",
    "support_recall": "weighted_recall_first_citation",
    "support_precision_hard": "hard_precision",
    "support_recall_hard": "hard_recall",
    "support_precision_all": "weighted_precision_all_judged_citations",
    "support_recall_all": "weighted_recall_all_judged_citations",
    "rating": "arena_score",
    "battles": "n_judgments",
    "wins": "wins",
    "losses": "losses",
    "ties": "ties",
}
"""The columns of the sheet that the track's evaluator, RAGDoll at 1f06719, has, too, with its names for them."""


def list_rows(rows: "Sequence[Row]") -> Rows:
    """List the head and the rows of a sheet. Counts are texts, so that only scores get decimals."""

    def make_cell(value: str | int | float | None) -> str | float:
        return math.nan if value is None else value if isinstance(value, float) else str(value)

    return [[*rows[0]], *([make_cell(value) for value in row.values()] for row in rows)]


def describe_sheet(sheet: "Sheet") -> dict[str, Any]:
    """Describe a sheet as values of JSON. A score that a run lacks is null."""
    return {"runs": sheet.rows, "left_out": sheet.left_out, "warnings": sheet.cautions}


def write_sheet(folder: Path, sheet: "Sheet") -> None:
    """Write a sheet to `sheet.csv`, with every digit, and `sheet.json`. Each appears when it is whole.

    `ragdoll.csv` has the columns that RAGDoll has, by its names.
    """
    theirs = [{RAGDOLL_NAMES[head]: row[head] for head in RAGDOLL_NAMES if head in row} for row in sheet.rows]
    for name, rows in ((SHEET_CSV, sheet.rows), (RAGDOLL_CSV, theirs)):
        with write_whole(folder / name) as out:
            out.write(f"{format_rows(list_rows(rows), 'csv')}\n".encode("utf-8", "surrogatepass"))
    with write_whole(folder / SHEET_JSON) as out:
        out.write(orjson.dumps(describe_sheet(sheet), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
