"""Writing of the report: one HTML file that needs nothing else, and may load nothing."""

from collections.abc import Sequence
from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_whole
from keystone.runs.report.html.markup import Html, element, join
from keystone.runs.report.html.measures import Measures, render_measures, take_measures
from keystone.runs.report.html.narratives import list_topic_ids, render_narratives
from keystone.runs.report.html.overview import render_overview
from keystone.runs.report.html.parts import make_policy, read_parts
from keystone.runs.report.html.read_answers import read_answer_view
from keystone.runs.report.html.read_run import read_view
from keystone.runs.report.html.types import RunView

STYLES = ("base.css", "page.css")
SCRIPTS = ("elements.js", "plots.js", "moves.js", "documents.js", "page.js")
"""The files of the page. All styles become one, and all scripts, in this order."""


def write_report(runs: Sequence[Path], out: Path, qrels: Path | None = None, notes: Sequence[str] = ()) -> None:
    """Write the report of run directories and answer files to one HTML file, with measures if there are judgments.

    `notes` are remarks that stand at the top. `UserError` for a folder without a run, and as from `take_measures`.
    """
    labels = [run.resolve().name for run in runs]
    if len(set(labels)) < len(labels):
        labels = [str(run) for run in runs]
    if len(set(labels)) < len(labels):
        raise UserError(f"expected different runs, found {', '.join(labels)}")
    views = [
        read_answer_view(run, label) if run.is_file() else read_view(run, label)
        for run, label in zip(runs, labels, strict=True)
    ]
    measures = take_measures(runs, views, qrels) if qrels else Measures((), (), {})
    with write_whole(out) as file:
        file.write(render_page(views, measures, notes).encode())


def render_page(views: Sequence[RunView], measures: Measures, notes: Sequence[str] = ()) -> Html:
    """Render the page of these runs. Its policy lets a browser use its own style and script, and load nothing."""
    style, script = (Html(read_parts("keystone.runs.report.html", names)) for names in (STYLES, SCRIPTS))
    labels = [view.label for view in views]
    title = f"{', '.join(labels)} – Keystone"
    sections = [
        render_overview(views),
        render_measures(measures, labels, list_topic_ids(views)),
        render_narratives(views, measures.grades, bool(measures.evaluations)),
    ]
    names = ("overview", *(["measures"] if measures.evaluations else []), "narratives")
    links = [element("a", name.capitalize(), href=f"#{name}") for name in names]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=make_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", style),
    )
    body = element(
        "body",
        element(
            "header",
            element("h1", "Keystone report"),
            element("nav", *links),
            *(element("p", note, class_="warning") for note in notes),
        ),
        element("main", *sections),
        element("div", id="tip", role="status", hidden=True),
        element("noscript", element("p", "Plots, the table of documents and the search need JavaScript.")),
        element("script", script),
    )
    return join(Html("<!doctype html>"), element("html", head, body, lang="en"))
