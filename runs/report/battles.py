"""The table of a pair of answer files on the terminal: wins, marks, and the agreement of both orders."""

import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from keystone.runs.report.say import say
from keystone.runs.report.terminal import format_p_value
from keystone.runs.wording import escape_controls, plural

if TYPE_CHECKING:
    from keystone.runs.evaluation.battles import Interval, Pair, Summary


def print_pair(pair: "Pair", summary: "Summary") -> None:
    """Print a heading with the files and the judge, then a row for each number with its interval or its test."""
    from rich.console import Console
    from rich.table import Table

    say(f"{pair.first} against {pair.second}: {plural(len(pair.fights), 'narrative')}, judged by {pair.judge}")
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value, test in _list_rows(summary):
        table.add_row(escape_controls(name), value, test)
    Console(width=None if sys.stdout.isatty() else 200, markup=False).print(table)


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
        ("share won", _format(found.win_share), _format_interval(found.win_interval)),
        ("marks", f"{_format(found.mark)} : {_format(found.other_mark)}", ""),
        ("difference of marks", _format(found.mark_difference, "+.2f"), _format_interval(found.mark_interval, "+.2f")),
        ("both orders agree", f"{found.agreeing} of {found.judged}", ""),
        ("share of the first slot", _format(found.first_slot_share), _format_interval(found.first_slot_interval)),
    ]
    return rows + ([("without a verdict", str(found.unjudged), "")] if found.unjudged else [])


def _format(value: float, form: str = ".2f") -> str:
    return "-" if math.isnan(value) else f"{value:{form}}"


def _format_interval(interval: "Interval", form: str = ".2f") -> str:
    low, high = interval
    return "" if math.isnan(low) else f"95 % interval {low:{form}} to {high:{form}}"
