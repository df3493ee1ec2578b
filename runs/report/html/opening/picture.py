"""The picture of the result: a row for each run, with a dot for each narrative, the mean and its interval."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keystone.runs.report.html.markup import Html, element
from keystone.runs.report.html.settings import render_run_name

BINS = 50
"""Dots whose values fall into the same of these parts of the axis are stacked."""
STACK_PIXELS = 46
BASE_PIXELS = 52
DOT_PIXELS = 9
"""The height of the stacks, the place of their lowest dot, and the largest distance of two dots in a stack."""
INTERVAL_PIXELS = 66
ROW_PIXELS = 74


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
    grid = [element("line", x1=place(at), x2=place(at), y1=0, y2=ROW_PIXELS, class_="axis") for at in ticks]
    has_interval = row.low == row.low
    ends = [
        element("line", x1=place(row.low), x2=place(row.high), y1=INTERVAL_PIXELS, y2=INTERVAL_PIXELS, class_="range")
    ]
    mean = element(
        "line", x1=place(row.mean), x2=place(row.mean), y1=INTERVAL_PIXELS - 6, y2=INTERVAL_PIXELS + 6, class_="mean"
    )
    svg = element(
        "svg",
        *grid,
        *(ends if has_interval else []),
        mean,
        *dots,
        width="100%",
        height=ROW_PIXELS,
        role="group",
        aria_label=f"{row.label}: {row.text}, {len(row.values)} narratives",
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
