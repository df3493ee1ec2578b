"""Pictures of evaluations, runs and diagnoses, as SVG or PNG: the same values give the same bytes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_whole
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.measures import Measure
from keystone.runs.evaluation.sweep import measure_rankings, read_cost
from keystone.runs.pipeline.file_names import CONFIG
from keystone.runs.pipeline.made_config import read_run_config
from keystone.runs.report.terminal import CIRCLE_TEXT, mark_circle
from keystone.runs.wording import escape_controls, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from keystone.runs.evaluation.arena.tournament import Leaderboard
    from keystone.runs.evaluation.diagnosis.diagnose import Diagnosis
    from keystone.runs.evaluation.leaderboard import Standings

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
"""Colours that people with any colour vision tell apart (Okabe and Ito, 2008)."""
HATCHES = ("", "//", "..", "\\\\", "xx")
LINES = ("-", "--", ":", "-.")
MARKERS = "os^Dv"
"""Hatches, lines and markers tell runs apart where colours repeat or are not printed."""
RECALL_DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
MOST_TOPIC_NAMES = 40
"""The most topics whose ids are written below their differences."""
STYLE: dict[Any, Any] = {"svg.hashsalt": "keystone", "svg.fonttype": "none", "text.parse_math": False, "font.size": 9}
PANEL_WIDTH_INCHES, HEIGHT_INCHES = 5.2, 4.2
ROW_INCHES, BOARD_ROW_INCHES = 0.19, 0.3
"""The height of a row of a run, or of a topic, where there are many, and of a run in a leaderboard of battles."""


@contextmanager
def _open_figure(panels: float, height_inches: float = HEIGHT_INCHES) -> "Iterator[Figure]":
    """Open an empty figure in our style, as wide as this many panels."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        yield Figure(figsize=(PANEL_WIDTH_INCHES * panels, height_inches), layout="constrained")


def draw_runs(evaluations: "Sequence[Evaluation]", measures: Sequence[str]) -> "Figure":
    """Draw bars of means with intervals, differences of topics for the first measure, and recall against depth.

    The evaluations have all `measures`, and `R@k` for all `RECALL_DEPTHS`. With one run there are no differences.
    """
    panels = 3 if len(evaluations) > 1 else 2
    with _open_figure(panels) as figure:
        bars, *differences, recall = figure.subplots(1, panels)
        _draw_bars(bars, evaluations, measures)
        for axes in differences:
            _draw_differences(axes, evaluations, measures[0])
        _draw_recall(recall, evaluations)
        figure.legend(*bars.get_legend_handles_labels(), loc="outside lower center", ncols=min(len(evaluations), 3))
        if any(map(mark_circle, evaluations)):
            figure.suptitle(CIRCLE_TEXT, fontsize="small")
    return figure


def draw_standings(found: "Standings") -> "Figure":
    """Draw a row for each of many runs, best first, and one for each topic, hardest first.

    A run has its mean with a 95 % interval, in blue if it ties with the best. A topic has the range of all runs, its
    quartiles and its median.
    """
    rows = max(len(found.runs), len(found.topics))
    with _open_figure(2.2, max(HEIGHT_INCHES, ROW_INCHES * rows + 1)) as figure:
        runs, topics = figure.subplots(1, 2)
        _draw_ranks(runs, found)
        _draw_topics(topics, found)
        for axes, count in ((runs, len(found.runs)), (topics, len(found.topics))):
            axes.set_ylim(max(count, 1) - 0.3, -0.7)
            axes.set_xlabel(found.measure)
            axes.grid(axis="x", alpha=0.3)
            axes.tick_params("x", top=True, labeltop=True)
        if any(mark_circle(one.run) for one in found.runs):
            figure.suptitle(CIRCLE_TEXT, fontsize="small")
    return figure


def _draw_ranks(axes: "Axes", found: "Standings") -> None:
    for ties, colour, label in ((True, COLOURS[0], "ties with the best"), (False, "#6b7178", "is worse")):
        own = [(place, one) for place, one in enumerate(found.runs) if one.ties == ties]
        means = np.array([one.run.mean(found.measure) for _, one in own])
        ends = np.array([(one.low, one.high) for _, one in own]).reshape(-1, 2)
        places = [place for place, _ in own]
        errors = np.abs(ends.T - means)
        axes.errorbar(means, places, xerr=errors, fmt="o", color=colour, markersize=4, capsize=2, label=label)
    labels = [f"{one.rank}  {_name(one.run)}" for one in found.runs]
    axes.set_yticks(range(len(labels)), labels, fontsize="small")
    axes.set_title("Runs, best first, with 95 % bootstrap intervals")
    axes.legend(fontsize="small")


def _draw_topics(axes: "Axes", found: "Standings") -> None:
    for place, row in enumerate(found.topics):
        known = [value for value in row.values if not np.isnan(value)]
        if not known:
            continue
        first, third = np.quantile(known, (0.25, 0.75))
        axes.hlines(place, row.low, row.high, color=COLOURS[4], linewidth=1)
        axes.hlines(place, first, third, color=COLOURS[0], linewidth=4)
        axes.plot([row.median], [place], marker="|", color=COLOURS[6], markersize=7, markeredgewidth=1.5)
    labels = [escape_controls(row.topic) for row in found.topics]
    axes.set_yticks(range(len(labels)), labels, fontsize="small")
    axes.set_title("Topics, hardest first: range, quartiles and median of runs")


def draw_losses(found: "Diagnosis") -> "Figure":
    """Draw a bar for each stage: what the coverage gains if its losses alone are repaired. The last bar is kept."""
    from keystone.runs.evaluation.diagnosis.diagnose import name_losses

    losses = name_losses()
    with _open_figure(1.5) as figure:
        axes = figure.subplots()
        stages = (*found.stages, None)
        colours = [COLOURS[0]] * len(found.stages) + [COLOURS[2]]
        bars = axes.barh(
            [losses[s] if s else "kept" for s in stages], list(map(found.sum_worth, stages)), color=colours
        )
        axes.bar_label(bars, [f"{sum(one.lost == stage for one in found.findings):,}" for stage in stages], padding=3)
        axes.margins(x=0.1)
        axes.invert_yaxis()
        axes.set_xlabel("part of the coverage, with the number beside the bar")
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    return figure


def draw_leaderboard(board: "Leaderboard") -> "Figure":
    """Draw the rating of each run of a tournament with its 95 % interval, the best run above."""
    with _open_figure(1.5, 1.2 + BOARD_ROW_INCHES * len(board.standings)) as figure:
        axes = figure.subplots()
        ratings = np.array([one.rating for one in board.standings])
        intervals = np.nan_to_num(np.abs(np.array([one.interval for one in board.standings]).T - ratings))
        rows = np.arange(len(ratings))
        axes.errorbar(ratings, rows, xerr=intervals, fmt="o", color=COLOURS[0], markersize=4, capsize=2)
        axes.set_yticks(rows, [f"{one.rank}  {escape_controls(one.run_id)}" for one in board.standings])
        axes.invert_yaxis()
        judge = escape_controls(board.judge)
        axes.set_xlabel(f"rating, with 95 % interval ({plural(board.judged, 'battle')}, judged by {judge})")
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    return figure


def draw_settings(
    lines: "Mapping[str, Mapping[Any, Evaluation]]", values: Sequence[Any], key: str, measure: str
) -> "Figure":
    """Draw a measure against the values of a setting, with 95 % intervals. On each line, the other settings are equal.

    `lines` maps the name of a line to its evaluations by value. `values` are in the order in which they are drawn.
    """
    with _open_panel(key, measure) as (figure, axes):
        for number, (name, line) in enumerate(lines.items()):
            shift = (number - (len(lines) - 1) / 2) * min(0.08, 0.6 / len(lines))
            own = [value for value in values if value in line]
            places = [values.index(value) + shift for value in own]
            _draw_points(
                axes, places, [line[value] for value in own], measure, (number, name, LINES[number % len(LINES)])
            )
        axes.set_xticks(range(len(values)), [escape_controls(str(value)) for value in values])
        if len(lines) > 1:
            figure.legend(loc="outside lower center", fontsize="x-small")
    return figure


def draw_costs(evaluations: "Sequence[Evaluation]", costs: Sequence[float], unit: str, measure: str) -> "Figure":
    """Draw a measure of each run, with its 95 % interval, against the cost of the run in `unit`."""
    with _open_panel(unit, measure) as (figure, axes):
        for number, (evaluation, cost) in enumerate(zip(evaluations, costs, strict=True)):
            _draw_points(axes, [cost], [evaluation], measure, (number, _name(evaluation), ""))
        axes.set_xlim(left=0)
        figure.legend(loc="outside lower center", fontsize="x-small", ncols=2)
    return figure


def draw_reliability(bins: Sequence[Mapping[str, float]]) -> "Figure":
    """Draw the share of relevant rows against their mean probability, with the number of rows of each bin.

    A bin has `rows`, `probability` and `relevant`. If a calibration is reliable, all points are on the diagonal.
    """
    with _open_panel("mean probability of rows", "share of relevant rows") as (figure, axes):
        axes.plot([0, 1], [0, 1], color=COLOURS[-1], linestyle=LINES[2])
        own = [one for one in bins if one["rows"]]
        axes.plot(
            [one["probability"] for one in own], [one["relevant"] for one in own], color=COLOURS[0], marker=MARKERS[0]
        )
        for one in own:
            place = one["probability"], one["relevant"]
            axes.annotate(f"{one['rows']:,}", place, xytext=(5, -10), textcoords="offset points", fontsize="x-small")
        axes.set_title("On topics that had no part in the fit, with the rows of each bin")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
    return figure


@contextmanager
def _open_panel(x: str, y: str) -> "Iterator[tuple[Figure, Axes]]":
    with _open_figure(1.5) as figure:
        axes = figure.subplots()
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.set_title("Mean over topics, with 95 % bootstrap interval")
        axes.grid(alpha=0.3)
        yield figure, axes


def _draw_points(
    axes: "Axes",
    places: Sequence[float],
    evaluations: "Sequence[Evaluation]",
    measure: str,
    look: tuple[int, str, str],
) -> None:
    """Draw means with intervals at these places. `look` is the number of the line, its name and its style."""
    number, name, line = look
    means = np.array([evaluation.mean(measure) for evaluation in evaluations])
    intervals = np.array([evaluation.interval(measure) for evaluation in evaluations])
    axes.errorbar(
        places,
        means,
        yerr=np.abs(intervals.T - means),
        label=escape_controls(name),
        color=COLOURS[number % len(COLOURS)],
        linestyle=line,
        marker=MARKERS[number % len(MARKERS)],
        markersize=4,
        capsize=2,
    )


def write_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format that the ending of `path` names. The file appears when it is whole."""
    from matplotlib import rc_context

    with rc_context(STYLE), write_whole(path) as out:
        kind = path.suffix[1:]
        figure.savefig(out, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {"Software": None})


def _draw_bars(axes: "Axes", evaluations: "Sequence[Evaluation]", measures: Sequence[str]) -> None:
    width = 0.8 / len(evaluations)
    for number, evaluation in enumerate(evaluations):
        means = np.array([evaluation.mean(measure) for measure in measures])
        intervals = np.array([evaluation.interval(measure) for measure in measures])
        places = np.arange(len(measures)) + (number - (len(evaluations) - 1) / 2) * width
        axes.bar(
            places,
            means,
            width,
            yerr=np.abs(intervals.T - means),
            label=_name(evaluation),
            color=COLOURS[number % len(COLOURS)],
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor="white",
            error_kw={"capsize": 2, "linewidth": 0.8},
        )
    axes.set_xticks(range(len(measures)), measures)
    axes.set_title("Mean over topics, with 95 % bootstrap interval")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _draw_differences(axes: "Axes", evaluations: "Sequence[Evaluation]", measure: str) -> None:
    """Draw the differences of each later run from the first, topic by topic, the largest first.

    One later run has bars, and the ids of few topics. Several have a line each, with an order of topics of its own.
    """
    from matplotlib.ticker import MaxNLocator

    first, *others = evaluations
    places = np.arange(len(first.topics))
    for number, other in enumerate(others, 1):
        differences = other.values[measure] - first.values[measure]
        order = np.argsort(-differences, kind="stable")
        colour, line = COLOURS[number % len(COLOURS)], LINES[number % len(LINES)]
        if len(others) > 1:
            axes.plot(places, differences[order], drawstyle="steps-mid", linestyle=line, color=colour)
            continue
        axes.bar(places, differences[order], color=colour)
        if len(places) <= MOST_TOPIC_NAMES:
            axes.set_xticks(places, [escape_controls(first.topics[i]) for i in order], rotation=90, fontsize="x-small")
    if len(others) > 1 or len(places) > MOST_TOPIC_NAMES:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_title(f"{measure}: difference from the first run")
    axes.set_xlabel("topics, sorted by difference")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _draw_recall(axes: "Axes", evaluations: "Sequence[Evaluation]") -> None:
    """Draw the recall of each run down to its own depth."""
    deepest = max(evaluation.counts.depth for evaluation in evaluations)
    for number, evaluation in enumerate(evaluations):
        depths = [depth for depth in RECALL_DEPTHS if depth <= max(evaluation.counts.depth, 1)]
        axes.plot(
            depths,
            [evaluation.mean(f"R@{depth}") for depth in depths],
            color=COLOURS[number % len(COLOURS)],
            linestyle=LINES[number % len(LINES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
        )
    axes.set_xscale("log")
    ticks = [depth for depth in RECALL_DEPTHS if depth <= max(deepest, 1)]
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("depth")
    axes.set_title("Recall against depth")
    axes.grid(alpha=0.3)


def _name(evaluation: Evaluation) -> str:
    return f"{escape_controls(evaluation.name)}{mark_circle(evaluation)}"


PLACES = ("out", "run_id", "model.cache")
"""Keys that say where a run is, and nothing about its rankings."""


def plot_setting(runs: Sequence[Path], qrels: Path, measure: Measure, key: str) -> "Figure":
    """Plot a measure against a setting. Runs that are equal in all other settings make a line.

    Numbers are in the order of size, other values in that of the runs. `UserError` if a folder is no run, if a
    configuration lacks the key, or if two runs have the same settings.
    """
    lines: dict[str, dict[Any, Evaluation]] = {}
    described = [dict(_list_settings(config.model_dump(mode="json"))) for config in map(_read_run_config, runs)]
    names = dict.fromkeys(name for one in described for name in one if name != key)
    differing = [name for name in names if len({str(one.get(name)) for one in described}) > 1]
    for directory, settings in zip(runs, described, strict=True):
        if key not in settings:
            raise UserError(f"{directory / CONFIG}: has no key {key}, expected one of {', '.join(settings)}")
        name = ", ".join(f"{other}={settings.get(other)}" for other in differing)
        line = lines.setdefault(name, {})
        if settings[key] in line:
            raise UserError(f"{directory}: has the same settings as another of the runs, expected it once")
        line[settings[key]] = _measure(directory, qrels, measure)
    values = list(dict.fromkeys(value for line in lines.values() for value in line))
    if all(isinstance(value, int | float) for value in values):
        values.sort()
    return draw_settings(lines, values, key, str(measure))


def plot_costs(runs: Sequence[Path], qrels: Path, measure: Measure, unit: str) -> "Figure":
    """Plot a measure against the cost of the calls, in `unit`: a field of `Cost`. `UserError` if a folder is no run."""
    evaluations = [replace(_measure(path, qrels, measure), name="/".join(path.parts[-2:])) for path in runs]
    return draw_costs(evaluations, [getattr(read_cost(path), unit) for path in runs], unit, str(measure))


def _measure(directory: Path, qrels: Path, measure: Measure) -> Evaluation:
    return measure_rankings(qrels, [measure])(directory, _read_run_config(directory))


def _read_run_config(directory: Path) -> RunConfig:
    if not (directory / CONFIG).is_file():
        raise UserError(f"{directory}: holds no {CONFIG}, expected the directory of a run")
    return read_run_config(directory)


def _list_settings(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """List the settings of a configuration by their dotted keys. A list is shown as text."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            yield from _list_settings(value, f"{key}.")
        elif key not in PLACES:
            yield key, value if isinstance(value, int | float | str) else str(value)
