"""The measures of a report: means with intervals, the values of each narrative for the plots, and judgments of use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from keystone.generation.prompts.evaluation import MOST_MARK, Answered
from keystone.indexing.errors import UserError
from keystone.indexing.types import document_id
from keystone.runs.evaluation.answers.families import FAMILIES
from keystone.runs.evaluation.answers.files import read_judged_submission
from keystone.runs.evaluation.bounds import treat_otherwise
from keystone.runs.evaluation.compare import Difference, collect_cautions, compare_runs
from keystone.runs.evaluation.evaluate import Evaluation, evaluate_files
from keystone.runs.evaluation.use import UseRecord, measure_use, name_use_file
from keystone.runs.pipeline.table import find_last_ranking
from keystone.runs.report.html.board import render_mean
from keystone.runs.report.html.markup import Html, element, embed_numbers, isolate, join, render_numbers
from keystone.runs.report.html.read_run import RunView
from keystone.runs.report.html.settings import render_run_name, sum_usage
from keystone.runs.track_rules import TRACKS
from keystone.runs.trec.arrays import Floats
from keystone.runs.trec.run_files import read_qrels

ORDERS = (("topic", "values in order"), ("value", "values, highest first"))
DIFFERENCE = ("difference", "last run minus first, highest first")
"""The views of the plot of each narrative, by their names in the script."""
LABELS = {"order": "What the plot of each narrative shows"}
"""The accessible names of choices without a visible one."""
COSTS = {
    "Model replies": sum_usage("calls", "cache_hits"),
    "Tokens": sum_usage("prompt_tokens", "completion_tokens"),
    "US dollars": sum_usage("cost"),
}
"""The columns of costs: their headings, and the description of a run."""
NO_COST = ("0", "0.00")
"""If all runs have one of these costs, as with recorded replies, the column is left out."""
NOTE = (
    "Means over the judged narratives, with 95 % intervals by bootstrap over narratives. "
    "p: paired randomisation test against the first run, corrected by Holm for the number of runs."
)


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of each run that has a ranking, reasons for caution, and the judged grades of documents by topic.

    A document with judged segments has the highest grade of these, and the segments have their own.
    """

    evaluations: Sequence[Evaluation]
    cautions: Sequence[str]
    grades: Mapping[str, Mapping[str, int]]


def take_measures(runs: Sequence[Path], views: Sequence[RunView], qrels_path: Path) -> Measures:
    """Measure the last ranking of each run. If segments are judged, the ranking that the run submits is measured.

    A run without a ranking, such as an answer file, is not measured. `UserError` if the judgments cannot be read, or if
    they judge none of a run's topics.
    """
    qrels = read_qrels(qrels_path)
    grades: dict[str, dict[str, int]] = {}
    for topic_id, doc_id, grade in qrels.list_rows():
        own = grades.setdefault(topic_id, {})
        for name in {doc_id, document_id(doc_id)}:
            own[name] = max(own.get(name, 0), grade)
    judges_segments = any("#" in name for own in grades.values() for name in own)
    paths = [_choose_ranking(run, view, judges_segments) for run, view in zip(runs, views, strict=True)]
    made = [(path, view.label) for path, view in zip(paths, views, strict=True) if path.exists()]
    found = evaluate_files([path for path, _ in made], qrels_path, add=treat_otherwise)
    shown = {topic_id for view in views for topic_id in view.topics}
    if shown and not shown & grades.keys():
        like = f"they look like {min(grades, default='')!r}, those of the runs like {min(shown)!r}"
        raise UserError(f"{qrels_path}: judges none of the topics of the runs: {like}")
    evaluations = [replace(one, name=label) for one, (_, label) in zip(found, made, strict=True)]
    return Measures(evaluations, collect_cautions(evaluations) if evaluations else (), grades)


def _choose_ranking(run: Path, view: RunView, judges_segments: bool) -> Path:
    track = view.config.track if view.config and judges_segments else None
    submitted = track and run / TRACKS[track].retrieval_file
    return submitted if submitted and submitted.is_file() else find_last_ranking(run)


def render_table(measures: Measures, views: Sequence[RunView]) -> Html:
    """Render the table of means, with what each run cost; empty without judgments."""
    evaluations = measures.evaluations
    if not evaluations:
        return Html("")
    of_label = {view.label: (number, view) for number, view in enumerate(views)}
    costs = {name: describe for name, describe in COSTS.items() if {*map(describe, views)} - {"", *NO_COST}}
    names = ["Run", *evaluations[0].values, *costs]
    compared: list[dict[str, Difference]] = [{}, *compare_runs(evaluations)]
    rows = []
    for one, own in zip(evaluations, compared, strict=True):
        number, view = of_label[one.name]
        head = element("th", render_run_name(one.name, number), scope="row")
        spent = [element("td", describe(view) or ("\u2013" if view.usage else "0")) for describe in costs.values()]
        means = (render_mean(one, measure, own.get(measure)) for measure in one)
        rows.append(element("tr", head, *means, *spent))
    return join(render_numbers(names, rows, "Measures"), element("p", NOTE, class_="note"))


def render_plots(measures: Measures, labels: Sequence[str], topic_ids: Sequence[str]) -> Html:
    """Render the places of the plots, which the script of the page fills; empty without judgments."""
    evaluations = measures.evaluations
    if not evaluations:
        return Html("")
    names = list(evaluations[0].values)
    orders = [*ORDERS, DIFFERENCE] if len(evaluations) > 1 else ORDERS
    return element(
        "div",
        element("p", element("label", "Measure ", _render_choice("measure", enumerate(names))), class_="controls"),
        _render_plot("bars", "Value of each narrative", _render_choice("order", orders)),
        _render_scatter([(labels.index(one.name), one.name) for one in evaluations]),
        _embed_values(evaluations, labels, topic_ids),
        id="plots",
    )


def _render_scatter(runs: Sequence[tuple[int, str]]) -> Html:
    """Render the plot of a run against another; empty if there is only one."""
    if len(runs) < 2:
        return Html("")
    across = element("label", "across ", _render_choice("across", runs))
    up = element("label", "up ", _render_choice("up", [runs[-1], *runs[:-1]]))
    return _render_plot("scatter", "Run against run", across, up)


def _render_plot(id: str, title: str, *controls: Html) -> Html:
    """Render a plot's title, its controls, and the place that the script of the page fills."""
    caption = element("figcaption", element("b", title), *controls)
    return element("figure", caption, element("div", id=id))


def _render_choice(id: str, options: Iterable[tuple[int | str, str]]) -> Html:
    return element(
        "select", *(element("option", text, value=value) for value, text in options), id=id, aria_label=LABELS.get(id)
    )


def _embed_values(evaluations: Sequence[Evaluation], labels: Sequence[str], topic_ids: Sequence[str]) -> Html:
    """Embed the values: for each run and measure a list of numbers by narrative, null where a narrative has none."""
    by_run: list[list[list[float | None]] | None] = [None] * len(labels)
    for one in evaluations:
        by_run[labels.index(one.name)] = by_measure = []
        for values in one.values.values():
            known = {name: round(value, 4) for name, value in zip(one.topics, values.tolist(), strict=True)}
            by_measure.append([value if (value := known.get(name)) == value else None for name in topic_ids])
    return embed_numbers(by_run, id="values")


LEVELS: Mapping[Answered, str] = {"yes": "answered", "partly": "partly answered", "no": "not answered"}
USE_NOTE = (
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
    return join(render_numbers(names, rows, "Use of the answers"), element("p", USE_NOTE, class_="note"))


def _format_mean(values: Floats) -> str:
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
