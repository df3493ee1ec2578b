"""What use answers are, where somebody has judged it: a table of means by run, and the questions of a narrative."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keystone.generation.prompts.evaluation.rate_use import MOST_MARK, Answered
from keystone.runs.evaluation.answers.families import FAMILIES
from keystone.runs.evaluation.answers.files import read_judged_submission
from keystone.runs.evaluation.use import UseRecord, measure_use, name_use_file
from keystone.runs.report.html.markup import Html, element, isolate, join
from keystone.runs.report.html.settings import render_run_name
from keystone.runs.report.html.types import RunView

LEVELS: Mapping[Answered, str] = {"yes": "answered", "partly": "partly answered", "no": "not answered"}
NOTE = (
    "What use the answers are, as a model judged them: the mean mark from 1 to 5, shares of questions, of sentences "
    "and of narratives. Gaps admitted: of the questions that are not answered in full."
)


def add_use(view: RunView, run: Path) -> RunView:
    """Add to a view the judgments of use that lie beside the answers of its run directory or answer file."""
    if not name_use_file(run).is_file():
        return view
    uses = read_judged_submission(run).uses or {}
    return replace(view, topics={name: replace(one, use=uses.get(name)) for name, one in view.topics.items()})


def render_use_table(views: Sequence[RunView]) -> Html:
    """Render a table with the means of each run; empty if no answer was judged."""
    rows = []
    for number, view in enumerate(views):
        judged = [topic.use for topic in view.topics.values() if topic.use]
        if judged:
            values = np.array([measure_use(one.use) for one in judged])
            counts = element("td", f"{len(judged)} of {len(view.topics)}")
            cells = (element("td", _format_mean(column)) for column in values.T)
            rows.append(element("tr", element("th", render_run_name(view.label, number), scope="row"), counts, *cells))
    if not rows:
        return Html("")
    names = ["Run", "judged", *FAMILIES["use"].columns]
    head = element("tr", *(element("th", name, scope="col") for name in names))
    table = element("table", element("thead", head), element("tbody", *rows), class_="numbers")
    return join(
        element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Use of the answers"),
        element("p", NOTE, class_="note"),
    )


def _format_mean(values: NDArray[np.float64]) -> str:
    known = values[~np.isnan(values)]
    return f"{known.mean():.2f}" if len(known) else "\u2013"


def render_use(record: UseRecord) -> Html:
    """Render the judgment of one answer: its mark and opening, its questions, and its sentences of no use."""
    use = record.use
    opening = "opens with what was asked for" if use.lead else "does not open with what was asked for"
    told = f"Judged by {record.judge}: mark {use.mark} of {MOST_MARK}; the answer {opening}."
    questions = [
        element("li", isolate(text, "span"), " ", element("small", _describe(own.answered, own.open)))
        for text, own in zip(record.questions, use.questions, strict=True)
    ]
    useless = [text for text, own in zip(record.sentences, use.sentences, strict=True) if not own.use]
    return join(
        element("h3", "Use"),
        element("p", told, class_="note"),
        element("ol", *questions, class_="queries"),
        element("p", f"Of no use, {len(useless)} of {len(record.sentences)}:", class_="note") if useless else Html(""),
        element("ul", *(element("li", isolate(text, "span")) for text in useless)) if useless else Html(""),
    )


def _describe(answered: Answered, is_open: bool) -> str:
    return f"{LEVELS[answered]}, and the answer says so" if is_open and answered != "yes" else LEVELS[answered]
