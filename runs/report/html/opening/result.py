"""The first section of the report: the result in a sentence, what it rests on, a picture and the table of measures.

The picture of the result: a row for each run, with a dot for each narrative, the mean and its interval.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.report.html.markup import Html, element
from keystone.runs.report.html.measures import Measures, render_table
from keystone.runs.report.html.opening.verdict import (
    FIRST_DOCUMENTS,
    choose_measure,
    count_shared,
    format_value,
    rank_runs,
    tell_result,
    tell_without_judgments,
)
from keystone.runs.report.html.settings import render_run_name
from keystone.runs.report.html.types import RunView
from keystone.runs.report.html.use import render_use_table
from keystone.runs.wording import plural

MOST_VALUE = 1.0
"""The highest value of the measures that a report takes."""
MOST_REMARKS = 8
"""More remarks on runs than these are folded."""
TICKS = 5
"""The number of ticks of an axis."""


def render_result(
    views: Sequence[RunView], measures: Measures, topic_ids: Sequence[str], notes: Sequence[str] = ()
) -> Html:
    """Render the section. Without judgments, it shows what the runs share."""
    evaluations = measures.evaluations
    if evaluations:
        measure = choose_measure(evaluations)
        told, picture = [tell_result(evaluations, measure)], _draw_values(views, evaluations, measure, topic_ids)
    else:
        told, picture = tell_without_judgments(views), _draw_shared(views, topic_ids)
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
    return {one.name: _list_values(one, measure) for one in rank_runs(measures.evaluations, measure)}, measure


def _list_values(one: Evaluation, measure: str) -> dict[str, float]:
    values = zip(one.topics, one.values[measure].tolist(), strict=True)
    return {topic_id: value for topic_id, value in values if not np.isnan(value)}


def _tell_fallbacks(view: RunView) -> list[str]:
    fallbacks = view.manifest.get("fallbacks", ())
    if not fallbacks:
        return []
    topics = plural(len({one["topic_id"] for one in fallbacks}), "narrative")
    return [f"the model gave no usable reply in {plural(len(fallbacks), 'step')} of {topics}, which are marked below"]


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
"""Dots whose values fall into the same of these parts of the axis are stacked."""
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
