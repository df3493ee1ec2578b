"""Tables of results as papers print them: Markdown, LaTeX, and CSV with every number."""

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from typing import TYPE_CHECKING

from keystone.runs.report.terminal import CIRCLE_TEXT, format_mean, mark_circle, mark_lists
from keystone.runs.wording import plural

if TYPE_CHECKING:
    from keystone.runs.evaluation.evaluate import Evaluation


def format_markdown(evaluations: "Sequence[Evaluation]") -> str:
    """Format means as a Markdown table. The best of each measure is bold; a dagger marks a significant difference."""
    table = join_markdown(_list_cells(evaluations, "**{}**", "†", escape_markdown), "---:")
    note = _explain_marks(evaluations, "†", r"\*")
    return f"{table}\n\n{note}" if note else table


def format_latex(evaluations: "Sequence[Evaluation]") -> str:
    """Format means as a LaTeX table for the package booktabs, marked as in Markdown."""
    table = join_latex(_list_cells(evaluations, r"\textbf{{{}}}", r"$^{\dagger}$", escape_latex), "r")
    note = _explain_marks(evaluations, r"$^{\dagger}$")
    return f"{table}\n% {note}" if note else table


def format_csv(evaluations: "Sequence[Evaluation]") -> str:
    """Format a row for each run and measure: the mean, its 95 % interval, and its difference from the first run."""
    from keystone.runs.evaluation.compare import Difference, compare_runs

    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    columns = [f"difference_{field.name}" for field in fields(Difference)]
    rows.writerow(["run", "measure", "topics", "circular_rows", "mean", "low", "high", *columns, "condensed"])
    for evaluation, found in zip(evaluations, [{}, *compare_runs(evaluations)], strict=True):
        for measure, values in evaluation.values.items():
            topics = sum(not math.isnan(value) for value in values)
            numbers = [evaluation.mean(measure), *evaluation.interval(measure)]
            numbers += astuple(found[measure]) if measure in found else [math.nan] * len(columns)
            head = [evaluation.name, measure, topics, evaluation.circular_rows]
            tail = "true" if evaluation.condensed else "false"
            rows.writerow([*head, *("" if math.isnan(n) else repr(n) for n in numbers), tail])
    return out.getvalue().rstrip("\n")


TABLES: "dict[str, Callable[[Sequence[Evaluation]], str]]" = {
    "markdown": format_markdown,
    "latex": format_latex,
    "csv": format_csv,
}
"""The forms of tables besides plain text."""


def _list_cells(
    evaluations: "Sequence[Evaluation]", bold: str, mark: str, escape: Callable[[str], str]
) -> list[list[str]]:
    """List the cells of a table: the names of the measures, then the name and the means of each run."""
    from keystone.runs.evaluation.compare import LEVEL, compare_runs

    measures = list(evaluations[0].values)
    means = {measure: [one.mean(measure) for one in evaluations] for measure in measures}
    best = {
        measure: max((mean for mean in own if not math.isnan(mean)), default=None) for measure, own in means.items()
    }
    rows = [[f"run{mark_lists(evaluations[0])}", *map(escape, measures)]]
    for evaluation, found in zip(evaluations, [{}, *compare_runs(evaluations)], strict=True):
        cells = []
        for measure in measures:
            mean, difference = evaluation.mean(measure), found.get(measure)
            marked = difference is not None and difference.p_randomisation < LEVEL
            text = bold.format(format_mean(mean)) if mean == best[measure] else format_mean(mean)
            cells.append(text + mark * marked + escape(mark_circle(evaluation)))
        rows.append([escape(evaluation.name), *cells])
    return rows


def _explain_marks(evaluations: "Sequence[Evaluation]", mark: str, circle: str = "*") -> str:
    from keystone.runs.evaluation.compare import LEVEL

    others, notes = len(evaluations) - 1, []
    if others:
        corrected = f", corrected by Holm for {plural(others, 'run')}" if others > 1 else ""
        notes.append(f"{mark} p < {LEVEL} against {evaluations[0].name} (paired randomisation test{corrected})")
    if any(map(mark_circle, evaluations)):
        notes.append(f"{circle}{CIRCLE_TEXT[1:]}")
    return "; ".join(notes)


def join_markdown(rows: Sequence[Sequence[str]], rule: str = "---") -> str:
    """Join the head and the rows of a table in Markdown. `rule` aligns all columns but the first."""
    head, *others = rows
    lines = [head, ["---", *[rule] * (len(head) - 1)], *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def join_latex(rows: Sequence[Sequence[str]], place: str = "l") -> str:
    """Join the head and the rows of a table for booktabs. `place` aligns all columns but the first."""
    head, *body = [" & ".join(row) + r" \\" for row in rows]
    begin = rf"\begin{{tabular}}{{l{place * (len(rows[0]) - 1)}}}"
    return "\n".join([begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"])


def escape_markdown(text: str) -> str:
    """Escape the characters that Markdown reads as marks."""
    return re.sub(r"([\\|*_`<])", r"\\\1", text)


def escape_latex(text: str) -> str:
    """Escape the characters that LaTeX reads as commands."""
    named = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return re.sub(r"[\\~^&%$#_{}]", lambda found: named.get(found[0], f"\\{found[0]}"), text)
