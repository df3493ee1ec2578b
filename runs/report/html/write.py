"""Writing of the report: one HTML file that needs nothing else, and may load nothing."""

from collections.abc import Sequence
from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_whole
from keystone.runs.evaluation.arena.tournament import Leaderboard
from keystone.runs.report.html.arena import render_leaderboard
from keystone.runs.report.html.frame import render_page_of
from keystone.runs.report.html.markup import Html
from keystone.runs.report.html.measures import Measures, take_measures
from keystone.runs.report.html.narratives import list_topic_ids, render_narratives
from keystone.runs.report.html.opening.answer import render_answer
from keystone.runs.report.html.opening.result import rank_values, render_result
from keystone.runs.report.html.read_run import read_answer_view, read_view
from keystone.runs.report.html.settings import render_settings
from keystone.runs.report.html.types import RunView
from keystone.runs.report.html.use import add_use

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

    `notes` are remarks that stand below the result, and `board` is that of battles.

    `UserError` for a folder without a run, and as from `take_measures`.
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
    topic_ids = list_topic_ids(views)
    title = f"{', '.join(view.label for view in views)} – Keystone"
    sections = {
        "result": render_result(views, measures, topic_ids, notes),
        "battles": render_leaderboard(board, [view.label for view in views]),
        "answer": render_answer(views, *rank_values(measures)),
        "narratives": render_narratives(views, measures, topic_ids),
        "settings": render_settings(views),
    }
    return render_page_of(title, sections, STYLES, SCRIPTS)
