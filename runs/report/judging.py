"""Printing of what judges say: agreement with others, intervals, and battles of two answer files."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keystone.runs.report.say import say
from keystone.runs.report.terminal import format_mean, format_p_value, print_table
from keystone.runs.wording import escape_controls, plural

if TYPE_CHECKING:
    from keystone.runs.evaluation.battles import Interval, Pair, Summary
    from keystone.runs.evaluation.judging.judge import Comparison
    from keystone.runs.evaluation.judging.redraw import JudgeInterval, NoisyMeans


def print_comparison(comparison: "Comparison", against: Path, relevant_from: int, measure: str) -> None:
    """Print the confusion matrix, Cohen's kappa of grades and of relevance, and Kendall's tau of several runs."""
    from rich.table import Table

    agreement = comparison.agreement
    say(f"\nAgreement with {against} on {plural(int(agreement.counts.sum()), 'document')} (rows: its grades):")
    table = Table("", *map(str, agreement.grades), box=None, pad_edge=False)
    for grade, row in zip(agreement.grades, agreement.counts.tolist(), strict=True):
        table.add_row(str(grade), *(f"{number:,}" for number in row))
    print_table(table)
    say(f"\nCohen's kappa: {format_mean(agreement.compute_kappa())}")
    say(f"Cohen's kappa of relevance (from grade {relevant_from}): "
        f"{format_mean(agreement.compute_binary_kappa(relevant_from))}")  # fmt: skip
    if len(comparison.own_means) > 1:
        say(f"Kendall's tau of {len(comparison.own_means)} runs by {measure}: {format_mean(comparison.tau)}")


def list_comparison(comparison: "Comparison", relevant_from: int) -> dict[str, Any]:
    """List the numbers of `print_comparison` as values of JSON. A number that cannot be computed is null."""
    agreement = comparison.agreement
    numbers = {
        "kappa": agreement.compute_kappa(),
        "kappa_of_relevance": agreement.compute_binary_kappa(relevant_from),
        "tau": comparison.tau if len(comparison.own_means) > 1 else math.nan,
    }
    return {
        "grades": agreement.grades,
        "counts": agreement.counts.tolist(),
        **{name: None if math.isnan(number) else number for name, number in numbers.items()},
    }


def format_judge_intervals(found: "Sequence[NoisyMeans]") -> str:
    """Format each mean, and each difference from the first run, with its interval over topics and judges."""
    lines = ["", "With the judge's noise (mean, 95 % interval over topics and judges):"]
    first = escape_controls(found[0].name)
    for one in found:
        name = escape_controls(one.name)
        lines += [f"{name}: {measure} {_format_interval(own, '.4f')}" for measure, own in one.means.items()]
        lines += [
            f"{name} against {first}: {measure} {_format_interval(own, '+.4f')}"
            for measure, own in one.differences.items()
        ]
    return "\n".join(lines)


def _format_interval(found: "JudgeInterval", form: str) -> str:
    numbers = f"{found.mean:{form}}, {found.low:{form}} to {found.high:{form}}"
    return "-" if "nan" in numbers else numbers


def print_pair(pair: "Pair", summary: "Summary") -> None:
    """Print a heading with the files and the judge, then a row for each number with its interval or its test."""
    from rich.table import Table

    say(f"{pair.first} against {pair.second}: {plural(len(pair.fights), 'narrative')}, judged by {pair.judge}")
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value, test in _list_rows(summary):
        table.add_row(escape_controls(name), value, test)
    print_table(table)


def describe_summary(pair: "Pair", summary: "Summary") -> dict[str, Any]:
    """List the numbers of a pair as values of JSON. A number that cannot be computed is null."""
    numbers = {name: _make_plain(value) for name, value in asdict(summary).items()}
    return {"first": pair.first, "second": pair.second, "judge": pair.judge, **numbers}


def _make_plain(value: "float | Interval") -> Any:
    if isinstance(value, tuple):
        return None if any(map(math.isnan, value)) else list(value)
    return None if math.isnan(value) else value


def _list_rows(found: "Summary") -> list[tuple[str, str, str]]:
    rows = [
        ("won, lost, tied", f"{found.won}, {found.lost}, {found.tied}", f"sign test: p {format_p_value(found.p_sign)}"),
        ("share won", _format_number(found.win_share), _format_bounds(found.win_interval)),
        ("marks", f"{_format_number(found.mark)} : {_format_number(found.other_mark)}", ""),
        (
            "difference of marks",
            _format_number(found.mark_difference, "+.2f"),
            _format_bounds(found.mark_interval, "+.2f"),
        ),
        ("both orders agree", f"{found.agreeing} of {found.judged}", ""),
        ("share of the first slot", _format_number(found.first_slot_share), _format_bounds(found.first_slot_interval)),
    ]
    return rows + ([("without a verdict", str(found.unjudged), "")] if found.unjudged else [])


def _format_number(value: float, form: str = ".2f") -> str:
    return "-" if math.isnan(value) else f"{value:{form}}"


def _format_bounds(interval: "Interval", form: str = ".2f") -> str:
    low, high = interval
    return "" if math.isnan(low) else f"95 % interval {low:{form}} to {high:{form}}"
