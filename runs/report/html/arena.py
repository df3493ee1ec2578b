"""The leaderboard of a tournament in the report: a picture of ratings with intervals, and the table."""

import math
from collections.abc import Sequence

from keystone.runs.evaluation.arena.tournament import Leaderboard
from keystone.runs.report.arena import count_battles, format_interval, tell_notes
from keystone.runs.report.html.markup import Html, element
from keystone.runs.report.html.opening.result import Row, render_picture
from keystone.runs.report.html.settings import render_run_name

STEPS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
MOST_TICKS = 6
COLUMNS = ("Rank", "Run", "Rating", "Battles", "Won", "Lost", "Tied")


def render_leaderboard(board: Leaderboard | None, labels: Sequence[str] = ()) -> Html:
    """Render the section; empty without a leaderboard. Runs of `labels` have the colours of the report."""
    if board is None:
        return Html("")
    others = [one.run_id for one in board.standings if one.run_id not in labels]
    numbers = {name: number for number, name in enumerate([*labels, *others])}
    rows = [
        Row(numbers[one.run_id], one.run_id, {}, one.rating, *one.interval, f"{one.rating:.0f}")
        for one in board.standings
    ]
    body = [
        element(
            "tr",
            element("td", one.rank),
            element("th", render_run_name(one.run_id, numbers[one.run_id]), scope="row"),
            element("td", f"{one.rating:.0f}", element("small", format_interval(one.interval))),
            *(element("td", number) for number in (one.battles, one.wins, one.losses, one.ties)),
        )
        for one in board.standings
    ]
    head = element("tr", *(element("th", name, scope="col") for name in COLUMNS))
    table = element("table", element("thead", head), element("tbody", *body), class_="numbers")
    told = f"{count_battles(board)}, judged by "
    return element(
        "section",
        element("h2", "Battles"),
        element("p", told, element("bdi", board.judge), ". 400 more in rating are ten wins to one loss."),
        render_picture(rows, "Rating of each run, with its 95 % interval", _choose_ticks(rows)),
        element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Leaderboard"),
        *(element("p", note, class_="note") for note in tell_notes(board)),
        id="battles",
    )


def _choose_ticks(rows: Sequence[Row]) -> list[float]:
    """Choose round ticks, the fewest that hold all ratings and intervals."""
    values = [value for row in rows for value in (row.mean, row.low, row.high) if not math.isnan(value)]
    least, most = min(values, default=1000.0), max(values, default=1000.0)
    step = next((one for one in STEPS if math.ceil(most / one) - math.floor(least / one) < MOST_TICKS), STEPS[-1])
    first, last = math.floor(least / step), math.ceil(most / step)
    return [float(step * n) for n in range(first, max(last, first + 1) + 1)]
