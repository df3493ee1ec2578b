"""Writing of the report with its table of battles: one HTML file that needs nothing else, and may load nothing."""

import math
from collections.abc import Sequence
from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_whole
from keystone.runs.evaluation.arena.tournament import Leaderboard
from keystone.runs.report.html.markup import Html, element, render_numbers, render_page_of
from keystone.runs.report.html.measures import Measures, add_use, take_measures
from keystone.runs.report.html.narratives import render_answer, render_narratives
from keystone.runs.report.html.read_run import RunView, read_answer_view, read_view
from keystone.runs.report.html.result import Row, rank_values, render_picture, render_result
from keystone.runs.report.html.settings import render_run_name, render_settings
from keystone.runs.report.judging import count_battles, format_interval, tell_notes

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
    told = f"{count_battles(board)}, judged by "
    return element(
        "section",
        element("h2", "Battles"),
        element("p", told, element("bdi", board.judge), ". 400 more in rating are ten wins to one loss."),
        render_picture(rows, "Rating of each run, with its 95 % interval", _choose_ticks(rows)),
        render_numbers(COLUMNS, body, "Leaderboard"),
        *(element("p", note, class_="note") for note in tell_notes(board)),
        id="battles",
    )


def _choose_ticks(rows: Sequence[Row]) -> list[float]:
    """Choose round ticks, the fewest that span all ratings and intervals."""
    values = [value for row in rows for value in (row.mean, row.low, row.high) if not math.isnan(value)]
    least, most = min(values, default=1000.0), max(values, default=1000.0)
    step = next((one for one in STEPS if math.ceil(most / one) - math.floor(least / one) < MOST_TICKS), STEPS[-1])
    first, last = math.floor(least / step), math.ceil(most / step)
    return [float(step * n) for n in range(first, max(last, first + 1) + 1)]


STYLES = ("base.css", "page.css")
SCRIPTS = ("elements.js", "plots.js", "moves.js", "documents.js", "picture.js", "page.js")
"""The files of the page. All styles become one, and all scripts, in this order."""


def write_report(
    runs: Sequence[Path],
    out: Path,
    qrels: Path | None = None,
    notes: Sequence[str] = (),
    board: Leaderboard | None = None,
) -> None:
    """Write the report of run directories and answer files to one HTML file, with measures if there are judgments.

    `notes` are remarks below the result, and `board` is the leaderboard of battles. `UserError` for a folder without a
    run, and as from `take_measures`.
    """
    labels = [run.resolve().name for run in runs]
    if len(set(labels)) < len(labels):
        labels = [str(run) for run in runs]
    if len(set(labels)) < len(labels):
        raise UserError(f"expected different runs, found {', '.join(labels)}")
    views = [
        add_use(read_answer_view(run, label) if run.is_file() else read_view(run, label), run)
        for run, label in zip(runs, labels, strict=True)
    ]
    measures = take_measures(runs, views, qrels) if qrels else Measures((), (), {})
    with write_whole(out) as file:
        file.write(render_page(views, measures, notes, board).encode())


def render_page(
    views: Sequence[RunView], measures: Measures, notes: Sequence[str] = (), board: Leaderboard | None = None
) -> Html:
    """Render the page of these runs."""
    topic_ids = list(dict.fromkeys(topic_id for view in views for topic_id in view.topics))
    title = f"{', '.join(view.label for view in views)} – Keystone"
    sections = {
        "result": render_result(views, measures, topic_ids, notes, board),
        "battles": render_leaderboard(board, [view.label for view in views]),
        "answer": render_answer(views, *rank_values(measures)),
        "narratives": render_narratives(views, measures, topic_ids),
        "settings": render_settings(views),
    }
    return render_page_of(title, sections, STYLES, SCRIPTS)
