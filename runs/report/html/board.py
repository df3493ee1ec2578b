"""The report of many runs: the best run and what ties with it, all runs from best to worst, and topics, hardest first.

Runs may be rankings or scored answers, since all that counts is their values by topic. The page needs no script.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten

import numpy as np

from keystone.indexing.io.writing import write_whole
from keystone.runs.evaluation.batch import find_team
from keystone.runs.evaluation.compare import Difference
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.leaderboard import Standings, rank_all
from keystone.runs.report.html.markup import Html, element, render_numbers, render_page_of
from keystone.runs.report.leaderboard import summarise_variance
from keystone.runs.report.terminal import format_p_value, mark_circle
from keystone.runs.wording import plural

STYLES = ("base.css", "page.css", "board.css")
HARDEST = 3
"""The number of hardest topics that the opening names."""
MOST_NAMED = 8
"""The most runs that a sentence names."""
TITLE_CHARACTERS = 60
"""The longest name of a topic in the opening."""
ROW_PIXELS, DOT_PIXELS = 20, 4.5
NOTE = (
    "95 % intervals by bootstrap over topics. Ties, p and letters: randomised Tukey HSD over all pairs of runs; two "
    "runs that share a letter do not differ."
)


@dataclass(frozen=True, slots=True)
class About:
    """What the page tells beside the numbers: the names of topics by id, what was left out, warnings, and tags."""

    titles: Mapping[str, str] = field(default_factory=dict)
    faults: Sequence[str] = ()
    cautions: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    """The tags of runs by name, as far as they differ from the names."""


def write_board(out: Path, evaluations: Sequence[Evaluation], measure: str, about: About) -> None:
    """Write the report of many runs, ranked by a measure, to one HTML file."""
    page = render_board(rank_all(evaluations, measure), about)
    with write_whole(out) as file:
        file.write(page.encode())


def render_board(found: Standings, about: About) -> Html:
    """Render the page."""
    sections = {
        "result": _render_result(found, about),
        "topics": _render_topics(found, about.titles),
        "measures": _render_measures(found, about.tags),
    }
    title = f"{plural(len(found.runs), 'run')} by {found.measure} – Keystone"
    return render_page_of(title, sections, STYLES, ())


def tell_standings(found: Standings, titles: Mapping[str, str]) -> list[str]:
    """Tell which run is best, which runs tie with it, and which topics are hardest."""
    best, *others = found.runs
    mean = best.run.mean(found.measure)
    interval = "" if np.isnan(best.low) else f" (95 % interval {best.low:.3f} to {best.high:.3f})"
    tied = [one.run.name for one in others if one.ties]
    named = ", ".join(tied[:MOST_NAMED]) + (f" and {len(tied) - MOST_NAMED} more" if len(tied) > MOST_NAMED else "")
    told = [f"{best.run.name} is best of {plural(len(found.runs), 'run')}: {found.measure} {mean:.4f}{interval}."]
    if others:
        ties = f"{plural(len(tied), 'run')} {'tie' if len(tied) > 1 else 'ties'} with it: {named}."
        told.append(ties if tied else "No run ties with it.")
    hard = [
        f"{row.topic}{f' ({_shorten(titles[row.topic])})' if row.topic in titles else ''}, mean {row.mean:.3f}"
        for row in found.topics[:HARDEST]
        if row.best
    ]
    return [*told, *([f"The hardest topics: {'; '.join(hard)}."] if hard else [])]


def _shorten(title: str) -> str:
    return shorten(title, TITLE_CHARACTERS, placeholder=" …")


def _render_result(found: Standings, about: About) -> Html:
    told = tell_standings(found, about.titles)
    remarks = [f"left out: {fault}" for fault in about.faults] + [*about.cautions]
    warnings = element(
        "details",
        element("summary", plural(len(remarks), "warning")),
        *(element("p", remark, class_="warning") for remark in remarks),
        open=bool(about.faults),
    )
    return element(
        "section",
        element("h1", told[0]),
        *(element("p", sentence, class_="told") for sentence in told[1:]),
        warnings if remarks else "",
        _render_picture(found),
        id="result",
    )


def _render_picture(found: Standings) -> Html:
    """Render a row for each run: its rank, its name, its mean with the interval, and the number."""
    values = [value for one in found.runs for value in (one.run.mean(found.measure), one.low, one.high)]
    known = [value for value in values if not np.isnan(value)]
    least, most = min([0.0, *known]), max(known, default=1.0)

    def place(value: float) -> str:
        return f"{100 * (value - least) / ((most - least) or 1):.2f}%"

    rows = []
    for one in found.runs:
        mean = one.run.mean(found.measure)
        marks = []
        if not np.isnan(one.low):
            y = ROW_PIXELS // 2
            marks.append(element("line", x1=place(one.low), x2=place(one.high), y1=y, y2=y, class_="range"))
        if not np.isnan(mean):
            marks.append(element("circle", cx=place(mean), cy=ROW_PIXELS // 2, r=f"{DOT_PIXELS}", class_="mean"))
        tied = " ties with the best" if one.ties else ""
        label = f"{one.run.name}: {found.measure} {mean:.4f}{tied}"
        rows.append(
            element(
                "li",
                element("span", one.rank, class_="rank"),
                element("bdi", f"{one.run.name}{mark_circle(one.run)}", class_="name"),
                element("svg", *marks, width="100%", height=ROW_PIXELS, role="img", aria_label=label),
                element("span", "–" if np.isnan(mean) else f"{mean:.4f}", class_="value"),
                class_="tied" if one.ties else None,
            )
        )
    title = f"{found.measure} of each run, with its 95 % interval"
    legend = element("span", element("i", class_="tied"), "ties with the best", class_="key")
    other = element("span", element("i"), "is worse", class_="key")
    caption = element("figcaption", element("b", title), *([legend, other] if len(found.runs) > 1 else []))
    return element("figure", caption, element("ol", *rows, class_="board"), class_="picture")


def _render_topics(found: Standings, titles: Mapping[str, str]) -> Html:
    """Render a row for each topic: its id and name, the mean of all runs, and a cell for each run, best run first."""
    names = [one.run.name for one in found.runs]
    known = [value for row in found.topics for value in row.values if not np.isnan(value)]
    most = max(known, default=1.0) or 1.0
    rows = []
    for row in found.topics:
        cells = [
            element(
                "rect",
                element("title", f"{name}: {value:.4f}"),
                x=number,
                width=1,
                height=1,
                fill_opacity=f"{max(value, 0) / most:.2f}",
            )
            for number, (name, value) in enumerate(zip(names, row.values, strict=True))
            if not np.isnan(value)
        ]
        strip = element(
            "svg",
            *cells,
            viewBox=f"0 0 {len(names)} 1",
            preserveAspectRatio="none",
            width="100%",
            height=ROW_PIXELS,
            role="img",
            aria_label=f"topic {row.topic}: from {row.low:.4f} to {row.high:.4f}, best {row.best or 'none'}",
        )
        title = titles.get(row.topic, "")
        name = element("span", element("b", row.topic), " ", title, class_="name", title=title or None)
        mean = element("span", "–" if np.isnan(row.mean) else f"{row.mean:.3f}", class_="value")
        rows.append(element("li", name, mean, strip))
    return element(
        "section",
        element("h2", "Topics, hardest first"),
        element(
            "p",
            f"A cell for each run, best run first; the stronger its colour, the higher its {found.measure}.",
            class_="note",
        ),
        element("p", summarise_variance([one.run for one in found.runs], found.measure), class_="note"),
        element("ol", *rows, class_="board strips"),
        id="topics",
    )


def _render_measures(found: Standings, tags: Mapping[str, str]) -> Html:
    """Render the table of all measures with intervals, and of the tests against the best run."""
    measures = list(found.runs[0].run.values)
    teams = [find_team(tags.get(one.run.name, one.run.name)) for one in found.runs]
    columns = ["Rank", "Run", *["Team"] * all(teams), "Ties", *measures, "To the best", "p", "Won, tied, lost"]
    rows = []
    for one, team in zip(found.runs, teams, strict=True):
        pair = one.against_best
        tests = ["", "", ""]
        if pair:
            won = f"{pair.losses}, {pair.ties}, {pair.wins}"
            tests = [f"{-pair.difference:+.4f}".replace("-", "\u2212"), format_p_value(pair.p_tukey), won]
        cells = [element("td", one.letters), *(render_mean(one.run, name) for name in measures)]
        head = element("th", element("bdi", one.run.name), scope="row")
        before = [element("td", one.rank), head, *[element("td", team)] * all(teams)]
        rows.append(element("tr", *before, *cells, *(element("td", text) for text in tests)))
    return element(
        "section",
        element("h2", "All measures"),
        element("p", NOTE, class_="note"),
        render_numbers(columns, rows, "All measures"),
        id="measures",
    )


def render_mean(one: Evaluation, measure: str, difference: Difference | None = None) -> Html:
    """Render the cell of a mean with its interval, and with p of a difference from the first run."""
    mean, (low, high) = one.mean(measure), one.interval(measure)
    if np.isnan(mean):
        return element("td", "–")
    interval = element("small", "" if np.isnan(low) else f"{low:.3f} to {high:.3f}")
    test = element("small", f"p {format_p_value(difference.p_randomisation)}") if difference else Html("")
    return element("td", f"{mean:.4f}", interval, test)
