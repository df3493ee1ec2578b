"""The leaderboard of a tournament on the terminal, as values of JSON and as a picture."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from keystone.generation.llm.usage import compute_cost
from keystone.runs.report.plots import COLOURS, PANEL_WIDTH_INCHES, STYLE
from keystone.runs.report.say import say
from keystone.runs.report.terminal import format_p_value, print_table
from keystone.runs.wording import escape_controls, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from keystone.generation.llm.usage import Prices
    from keystone.runs.evaluation.arena.tournament import Leaderboard
    from keystone.runs.pipeline.foresight import Foreseen

HEAD = ("rank", "run", "rating", "95 % interval", "battles", "won", "lost", "tied")
ROW_HEIGHT_INCHES = 0.3


def print_leaderboard(board: "Leaderboard") -> None:
    """Print a heading with the judge, a row for each run by rank, and below it what the ratings rest on."""
    from rich.table import Table

    say(f"{count_battles(board)}, judged by {escape_controls(board.judge)}")
    table = Table(box=None, pad_edge=False)
    for name in HEAD:
        table.add_column(name, justify="left" if name == "run" else "right", no_wrap=True)
    for one in board.standings:
        numbers = one.battles, one.wins, one.losses, one.ties
        rating, interval = f"{one.rating:.0f}", format_interval(one.interval)
        table.add_row(str(one.rank), escape_controls(one.run_id), rating, interval, *map(str, numbers))
    print_table(table)
    for line in tell_notes(board):
        say(line)


def count_battles(board: "Leaderboard") -> str:
    """Count the battles of a leaderboard in words, with their narratives if these are known."""
    on = f" on {plural(board.narratives, 'narrative')}" if board.narratives else ""
    return f"{plural(board.judged, 'battle')}{on}"


def format_interval(interval: tuple[float, float], form: str = ".0f") -> str:
    """Format an interval; a dash where there is none."""
    low, high = interval
    return "-" if math.isnan(low) or math.isnan(high) else f"{low:{form}} to {high:{form}}"


def tell_notes(board: "Leaderboard") -> Iterator[str]:
    """Tell what the first slot is worth, and whether a ridge was needed."""
    slots = board.slots
    if not math.isnan(slots.share):
        interval = format_interval(slots.interval, ".2f")
        yield f"share of the first slot: {slots.share:.2f} (95 % interval {interval}); .50 without bias"
    if slots.gamma is not None:
        worth, interval = f"{slots.gamma:+.2f}", format_interval(slots.gamma_interval, "+.2f")
        yield f"first-slot term: {worth} (95 % interval {interval}), p {format_p_value(slots.p)}"
    if board.ridge and board.judged:
        groups = [", ".join(map(escape_controls, group)) for group in board.groups]
        yield (
            f"ratings with a ridge of {board.ridge:g}: wins and ties do not lead from each run to each other one. "
            f"Groups that do: {'; '.join(groups)}"
        )


def describe_leaderboard(board: "Leaderboard") -> dict[str, Any]:
    """List a leaderboard as values of JSON. A number that cannot be computed is null."""
    plain: dict[str, Any] = _make_plain(asdict(board))
    return plain


def _make_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _make_plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [_make_plain(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def draw_leaderboard(board: "Leaderboard") -> "Figure":
    """Draw the rating of each run with its 95 % interval, the best run above."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        judge = escape_controls(board.judge)
        height = 1.2 + ROW_HEIGHT_INCHES * len(board.standings)
        figure = Figure(figsize=(PANEL_WIDTH_INCHES * 1.5, height), layout="constrained")
        axes = figure.subplots()
        ratings = np.array([one.rating for one in board.standings])
        intervals = np.nan_to_num(np.abs(np.array([one.interval for one in board.standings]).T - ratings))
        rows = np.arange(len(ratings))
        axes.errorbar(ratings, rows, xerr=intervals, fmt="o", color=COLOURS[0], markersize=4, capsize=2)
        axes.set_yticks(rows, [f"{one.rank}  {escape_controls(one.run_id)}" for one in board.standings])
        axes.invert_yaxis()
        axes.set_xlabel(f"rating, with 95 % interval ({plural(board.judged, 'battle')}, judged by {judge})")
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    return figure


def tell_foreseen(number: int, foreseen: "Foreseen | None", prices: "Prices | None") -> Iterator[str]:
    """Tell the battles of a tournament, and what their calls can cost, before any is judged."""
    yield f"{plural(number, 'battle')} at most; nothing is written, no model is asked"
    if foreseen is not None:
        for name, usage in (("at most", foreseen.most), ("likely", foreseen.likely)):
            cost = "" if prices is None else f", ${compute_cost(usage, prices):,.2f}"
            tokens = f"{usage.prompt_tokens:,} tokens of prompts and {usage.completion_tokens:,} of replies"
            yield f"{name}: {plural(usage.calls, 'call')}, {tokens}{cost}"
