"""The first section of the report: the result in a sentence, what it rests on, a picture and the table of measures.

The picture of the result: a row for each run, with a dot for each narrative, the mean and its interval.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from keystone.runs.evaluation.arena.tournament import Leaderboard, Standing
from keystone.runs.evaluation.compare import Difference, compare_runs
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.leaderboard import sort_runs
from keystone.runs.report.html.markup import Html, element
from keystone.runs.report.html.measures import Measures, render_table, render_use_table
from keystone.runs.report.html.read_run import RunView
from keystone.runs.report.html.settings import render_run_name
from keystone.runs.report.judging import count_battles, format_interval
from keystone.runs.wording import plural

MEASURE = "nDCG@10"
"""The measure of the result. If no run has it, the first measure that a run has takes its place."""
LIKELY_BY_CHANCE = 0.05
"""The least p of a difference that chance explains as well."""
FEWEST_NARRATIVES = 6
"""A run that wins all of fewer narratives may have won by chance (a sign test has p above .05)."""
FIRST_DOCUMENTS = 10
"""How many first documents of two rankings are compared if there are no judgments."""


@dataclass(frozen=True, slots=True)
class Lead:
    """The lead of the best run over another one: its mean, its 95 % interval, and the topics that are better."""

    over: str
    mean: float
    low: float
    high: float
    p: float
    better: int
    topics: int

    @property
    def is_sure(self) -> bool:
        """Whether the runs can be told apart: the interval is above 0, and the randomisation test agrees."""
        return self.low > 0 and self.p < LIKELY_BY_CHANCE

    def __str__(self) -> str:
        """Tell the lead, its interval, and how many topics are better."""
        interval = "" if np.isnan(self.low) else f" (95 % interval {_sign(self.low)} to {_sign(self.high)})"
        return f"{_sign(self.mean)} over {self.over}{interval}, better in {self.better} of {_count(self.topics)}"


def choose_measure(evaluations: Sequence[Evaluation]) -> str:
    """Choose the measure of the result."""
    names = [name for name in evaluations[0].values if not np.isnan(evaluations[0].mean(name))]
    return MEASURE if MEASURE in names or not names else names[0]


def tell_result(evaluations: Sequence[Evaluation], measure: str) -> str:
    """Tell which run has the highest mean, and how sure its lead is over the first run and over those near it."""
    best, *others = sort_runs(evaluations, measure)
    if not others:
        return _tell_alone(best, measure)
    leads = _measure_leads(best, others, measure)
    near = [lead for lead in leads if not lead.is_sure]
    first = next((lead for lead in leads if lead.over == evaluations[0].name), leads[0])
    mean = format_value(best.mean(measure))
    if not near:
        return f"{best.name} leads with {measure} {mean}: {first}."
    names, numbers = _join([lead.over for lead in near]), "; ".join(map(str, near))
    sentence = f"{best.name} has the highest {measure}, {mean}, but it cannot be told apart from {names}: {numbers}."
    return f"{sentence} It is ahead of {first.over}: {first}." if first.is_sure else sentence


def tell_battles(board: Leaderboard) -> str:
    """Tell which run won the battles, and whether its interval is above those of all others. Needs a battle."""
    best, *others = [one for one in board.standings if one.battles]
    ground = f"{count_battles(board)}, judged by {board.judge}"
    if equal := [one for one in others if one.rank == best.rank]:
        names = _join([one.run_id for one in (best, *equal)])
        return f"{names} share the first place in {ground}, with a rating of {best.rating:.0f}."
    near = [one for one in others if not one.interval[1] < best.interval[0]]
    if not near and board.linked and board.narratives >= FEWEST_NARRATIVES:
        second = [one for one in others if one.rank == others[0].rank]
        rated = f"with a rating of {_rate(best)}, before {_rate_all(second)}"
        return f"{best.run_id} won the battles {rated}: {ground}."
    if np.isnan(best.interval[0]):
        doubt = "it has no interval"
    elif not board.linked:
        doubt = "battles do not link all runs"
    elif near:
        doubt = f"its interval overlaps {_rate_all(near)}"
    else:
        doubt = f"{_count(board.narratives)} are too few to be sure"
    return f"{best.run_id} has the highest rating of the battles, {_rate(best)}, but {doubt}: {ground}."


def _rate_all(standings: Sequence[Standing]) -> str:
    return _join([f"{one.run_id} with {_rate(one)}" for one in standings])


def _rate(one: Standing) -> str:
    interval = "" if np.isnan(one.interval[0]) else f" (95 % interval {format_interval(one.interval)})"
    return f"{one.rating:.0f}{interval}"


def tell_without_judgments(views: Sequence[RunView]) -> list[str]:
    """Tell what can be said of runs without judgments: the documents that they share, and their answers."""
    found = [*_tell_shared(views), *filter(None, map(_tell_answers, views))]
    if not found:
        found = [f"{_join([view.label for view in views])}: {_count(max(len(view.topics) for view in views))}."]
    return [*found, "Without judgments (--qrels), the report cannot say how good a run is."]


def count_shared(first: RunView, other: RunView) -> dict[str, int]:
    """Count, for each topic of both runs, the documents that are among the first ones of both rankings."""
    return {
        topic_id: len(_list_first(first, topic_id) & _list_first(other, topic_id))
        for topic_id in first.topics
        if topic_id in other.topics and _list_first(first, topic_id)
    }


def format_value(value: float) -> str:
    """Format a value of a measure for a sentence."""
    return f"{value:.2f}"


def _sign(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "\u2212")


def _count(topics: int) -> str:
    return plural(topics, "narrative")


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _tell_alone(one: Evaluation, measure: str) -> str:
    values = one.values[measure]
    low, high = one.interval(measure)
    interval = "" if np.isnan(low) else f" (95 % interval {format_value(low)} to {format_value(high)})"
    measured = int((~np.isnan(values)).sum())
    return f"{one.name} reaches {measure} {format_value(one.mean(measure))}{interval} over {_count(measured)}."


def _measure_leads(best: Evaluation, others: Sequence[Evaluation], measure: str) -> list[Lead]:
    """Measure the lead over each other run, the nearest first."""
    found: list[dict[str, Difference]] = compare_runs([best, *others])
    leads = []
    for other, own in zip(others, found, strict=True):
        gains = best.values[measure] - other.values[measure]
        better, topics = int((gains > 0).sum()), int((~np.isnan(gains)).sum())
        of_other = own[measure]
        leads.append(
            Lead(other.name, -of_other.mean, -of_other.high, -of_other.low, of_other.p_randomisation, better, topics)
        )
    return leads


def _list_first(view: RunView, topic_id: str) -> set[str]:
    documents = view.topics[topic_id].documents
    return {document.id for document in documents if 0 < document.last <= FIRST_DOCUMENTS}


def _tell_shared(views: Sequence[RunView]) -> list[str]:
    first, *others = views
    shared = {other.label: list(count_shared(first, other).values()) for other in others}
    means = [f"{first.label} and {label} share {np.mean(counts):.1f}" for label, counts in shared.items() if counts]
    if not means:
        return []
    return [f"{_join(means)} of their first {FIRST_DOCUMENTS} documents on average."]


def _tell_answers(view: RunView) -> str:
    answers = [topic.answer for topic in view.topics.values() if topic.answer and topic.answer.sentences]
    if not answers:
        return ""
    cited = [bool(citations) for answer in answers for _, citations in answer.sentences]
    length = f"{len(cited) / len(answers):.1f} sentences on average"
    share = f"{100 * np.mean(cited):.0f} % of them with a citation"
    return f"{view.label} answers {len(answers)} of {_count(len(view.topics))}: {length}, {share}."


MOST_VALUE = 1.0
"""The highest value of the measures that a report takes."""
MOST_REMARKS = 8
"""More remarks on runs than these are folded."""
TICKS = 5
"""The number of ticks of an axis."""


def render_result(
    views: Sequence[RunView],
    measures: Measures,
    topic_ids: Sequence[str],
    notes: Sequence[str] = (),
    board: Leaderboard | None = None,
) -> Html:
    """Render the section: by judgments, then by the battles of `board`. Without judgments, it shows what runs share."""
    evaluations = measures.evaluations
    if evaluations:
        measure = choose_measure(evaluations)
        told, picture = [tell_result(evaluations, measure)], _draw_values(views, evaluations, measure, topic_ids)
    else:
        told, picture = tell_without_judgments(views), _draw_shared(views, topic_ids)
    if board is not None and board.judged:
        told.insert(bool(evaluations), tell_battles(board))
    return element(
        "section",
        element("h1", told[0]),
        *(element("p", sentence, class_="told") for sentence in told[1:]),
        *(element("p", note, class_="warning") for note in (*notes, *measures.cautions)),
        *_render_remarks(views),
        picture,
        render_table(measures, views),
        render_use_table(views),
        id="result",
    )


def _render_remarks(views: Sequence[RunView]) -> list[Html]:
    """Render the remarks on each run; many are folded."""
    remarks = [
        element("p", element("b", element("bdi", view.label)), ": ", remark, class_="warning")
        for view in views
        for remark in (*view.remarks, *_tell_fallbacks(view))
    ]
    if len(remarks) <= MOST_REMARKS:
        return remarks
    return [element("details", element("summary", plural(len(remarks), "remark")), *remarks)]


def rank_values(measures: Measures) -> tuple[dict[str, Mapping[str, float]], str]:
    """Rank the runs by the measure of the result: the values of each narrative by run, and the measure's name."""
    if not measures.evaluations:
        return {}, ""
    measure = choose_measure(measures.evaluations)
    return {one.name: _list_values(one, measure) for one in sort_runs(measures.evaluations, measure)}, measure


def _list_values(one: Evaluation, measure: str) -> dict[str, float]:
    values = zip(one.topics, one.values[measure].tolist(), strict=True)
    return {topic_id: value for topic_id, value in values if not np.isnan(value)}


def _tell_fallbacks(view: RunView) -> list[str]:
    fallbacks = view.manifest.get("fallbacks", ())
    if not fallbacks:
        return []
    topics = plural(len({one["topic_id"] for one in fallbacks}), "narrative")
    steps = plural(len(fallbacks), "step")
    return [f"in {steps} of {topics}, marked below, a rule replaced the model's reply or dropped a citation"]


def _draw_values(
    views: Sequence[RunView], evaluations: Sequence[Evaluation], measure: str, topic_ids: Sequence[str]
) -> Html:
    labels = [view.label for view in views]
    numbers = {name: number for number, name in enumerate(topic_ids)}
    rows = []
    for one in evaluations:
        low, high = one.interval(measure)
        mean = one.mean(measure)
        text = format_value(mean) + ("" if np.isnan(low) else f" ({format_value(low)} to {format_value(high)})")
        values = {numbers[name]: value for name, value in _list_values(one, measure).items() if name in numbers}
        rows.append(Row(labels.index(one.name), one.name, values, mean, low, high, text))
    title = f"{measure} of each run: a dot for each narrative, and the mean with its 95 % interval"
    return render_picture(rows, title, [MOST_VALUE * n / (TICKS - 1) for n in range(TICKS)])


def _draw_shared(views: Sequence[RunView], topic_ids: Sequence[str]) -> Html:
    first, *others = views
    numbers = {name: number for number, name in enumerate(topic_ids)}
    rows = []
    for place, other in enumerate(others, 1):
        counts = {numbers[name]: float(count) for name, count in count_shared(first, other).items()}
        if counts:
            mean = sum(counts.values()) / len(counts)
            rows.append(Row(place, other.label, counts, mean, np.nan, np.nan, f"{mean:.1f} on average"))
    title = (
        f"Documents that a run shares with {first.label} among the first {FIRST_DOCUMENTS}: a dot for each narrative"
    )
    return render_picture(rows, title, list(range(0, FIRST_DOCUMENTS + 1, 2))) if rows else Html("")


BINS = 50
"""The number of parts of the axis. Dots whose values fall into the same part are stacked."""
STACK_PIXELS = 46
BASE_PIXELS = 52
DOT_PIXELS = 9
"""The height of the stacks, the place of their lowest dot, and the largest distance of two dots in a stack."""
INTERVAL_PIXELS, ROW_PIXELS = 66, 74
"""The place of the interval in a row, and the height of the row."""
BARE_INTERVAL_PIXELS, BARE_ROW_PIXELS = 11, 25
"""The same for a row without dots."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the picture: the number and name of a run, its value for each narrative, its mean, and an interval.

    `text` tells the mean and the interval. Narratives are counted from 0. Without an interval, both ends are NaN.
    """

    number: int
    label: str
    values: Mapping[int, float]
    mean: float
    low: float
    high: float
    text: str


def render_picture(rows: Sequence[Row], title: str, ticks: Sequence[float]) -> Html:
    """Render the picture. The first and the last tick are the ends of its axis."""
    return element(
        "figure",
        element("figcaption", element("b", title)),
        *(_render_row(row, ticks) for row in rows),
        element("div", _render_axis(ticks), class_="strip axis-row", aria_hidden="true"),
        class_="picture",
    )


def _render_row(row: Row, ticks: Sequence[float]) -> Html:
    least, most = ticks[0], ticks[-1]

    def place(value: float) -> str:
        return f"{100 * (value - least) / (most - least):.2f}%"

    bins = {topic: round(BINS * (value - least) / (most - least)) for topic, value in row.values.items()}
    tallest = max(Counter(bins.values()).values(), default=1)
    distance = min(DOT_PIXELS, STACK_PIXELS / tallest)
    heights = Counter[int]()
    dots = []
    for topic, value in sorted(row.values.items(), key=lambda item: item[1]):
        y = BASE_PIXELS - distance * heights[bins[topic]]
        heights[bins[topic]] += 1
        shown = f"{value:.4f}".rstrip("0").rstrip(".")
        dots.append(
            element("circle", cx=place(value), cy=f"{y:.1f}", r=4, class_="dot", data_topic=topic, data_value=shown)
        )
    y, height = (INTERVAL_PIXELS, ROW_PIXELS) if row.values else (BARE_INTERVAL_PIXELS, BARE_ROW_PIXELS)
    grid = [element("line", x1=place(at), x2=place(at), y1=0, y2=height, class_="axis") for at in ticks]
    has_interval = row.low == row.low
    ends = [element("line", x1=place(row.low), x2=place(row.high), y1=y, y2=y, class_="range")]
    mean = element("line", x1=place(row.mean), x2=place(row.mean), y1=y - 6, y2=y + 6, class_="mean")
    counted = f", {len(row.values)} narratives" if row.values else ""
    svg = element(
        "svg",
        *grid,
        *(ends if has_interval else []),
        mean,
        *dots,
        width="100%",
        height=height,
        role="group",
        aria_label=f"{row.label}: {row.text}{counted}",
    )
    return element(
        "div",
        element("div", render_run_name(row.label, row.number), class_="name"),
        element("div", row.text, class_="figure"),
        element("div", svg, class_="plot"),
        class_=f"strip run{row.number % 7}",
    )


def _render_axis(ticks: Sequence[float]) -> Html:
    last = len(ticks) - 1
    texts = [
        element(
            "text",
            f"{tick:g}",
            x=f"{100 * n / last:.2f}%",
            y=14,
            text_anchor="middle",
        )
        for n, tick in enumerate(ticks)
    ]
    return element("div", element("svg", *texts, width="100%", height=20), class_="plot")
