"""Progress on standard error, and tables of results on standard output."""

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from shlex import quote
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from keystone.indexing.types import Progress, Tick, silent
from keystone.runs.report.say import say
from keystone.runs.wording import escape_controls, format_seconds, plural

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from keystone.indexing.embedder import Forecast
    from keystone.runs.evaluation.evaluate import Evaluation
    from keystone.runs.evaluation.sweep import Sweep
    from keystone.runs.evaluation.tune import Tuning

FORETOLD_AFTER_SECONDS = 3.0
"""When a step says how long it will take: its speed is known by then."""
LEAST_FORETOLD_SECONDS = 20.0
"""A step that ends sooner does not say so."""
LEAST_FORETOLD_BYTES = 1e6
"""A step of unknown time whose result is smaller does not say what it will take."""
TOLD_SECONDS = 1.0
"""A step that takes longer has a line."""
MOST_COLUMNS = 12
"""The most measures that stand in columns."""
P_VALUES = "  p (paired t-test)"
CIRCLE_TEXT = "* measured on the grades that selected the run's documents: no evidence of effect"


@contextmanager
def progress_bars(quiet: bool, foretold: Collection[str] = ()) -> Iterator[Progress]:
    """Make a `Progress` for standard error: a line for each step of more than a second, after it ends, and a last line.

    Soon after its beginning, a long step also says how long it will take, unless its description is among those that
    somebody has `foretold` by then. On a terminal, the steps that are under way also have bars, which disappear.
    A step that begins within another has no line. If `quiet`, nothing is shown.
    """
    if quiet:
        yield silent
        return
    bars = _make_bars() if sys.stderr.isatty() else None
    begun, told, under_way = monotonic(), list[str](), list[str]()

    def tell(line: str) -> None:
        if bars is None:
            say(line, err=True)
        else:
            bars.console.print(escape_controls(line), markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def step(description: str, total: int | None) -> Iterator[Tick]:
        is_inner, count, start, is_told = bool(under_way), [0], monotonic(), description in foretold
        under_way.append(description)
        task: TaskID | None = None
        if bars:
            bars.start()  # with the first bar: without a step, nothing is drawn
            task = bars.add_task(escape_controls(description), total=total)

        def tick(items: int) -> None:
            nonlocal is_told
            count[0] += items
            if bars and task is not None:
                bars.advance(task, items)
            if total and not is_inner and not is_told and (spent := monotonic() - start) > FORETOLD_AFTER_SECONDS:
                is_told = True
                if line := foretell(description, count[0], total, spent):
                    tell(line)

        try:
            yield tick
        finally:
            under_way.remove(description)
            if bars and task is not None:
                bars.remove_task(task)
        if not is_inner and (seconds := monotonic() - start) > TOLD_SECONDS:
            told.append(description)
            number = f"{count[0]:,} in " if count[0] else ""
            tell(f"{description}: {number}{format_seconds(seconds)}")

    try:
        yield step
        if len(told) > 1:
            tell(f"Finished in {format_seconds(monotonic() - begun)}")
    finally:
        if bars and bars.live.is_started:
            bars.stop()


def foretell(description: str, done: int, total: int, spent: float) -> str:
    """Say how long a step will still take, after `done` of its `total` items took `spent` seconds.

    The line is empty if the step ends within `LEAST_FORETOLD_SECONDS`.
    """
    rest = spent * (total - done) / done if done else 0.0
    if rest < LEAST_FORETOLD_SECONDS:
        return ""
    return f"{description}: {total:,} at {done / spent:,.0f} a second, about {format_seconds(rest)} more"


def show_forecast(forecast: "Forecast") -> str:
    """Say what a step will take; the line is empty if it is little."""
    if forecast.seconds is None:
        time, is_short = "", forecast.bytes < LEAST_FORETOLD_BYTES
    else:
        time = f"about {format_seconds(forecast.seconds)}, and "
        is_short = forecast.seconds < LEAST_FORETOLD_SECONDS
    if is_short:
        return ""
    return f"{forecast.step}: {plural(forecast.texts, 'text')} will take {time}{forecast.bytes / 1e6:,.1f} MB on disk"


def _make_bars() -> "Bars":
    """Make bars for the steps that are under way, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Bars(*columns, console=Console(stderr=True, emoji=False), transient=True)


def print_evaluations(evaluations: "Sequence[Evaluation]", compare: bool = True, out: TextIO | None = None) -> None:
    """Print a row for each run and a column for each measure; if `compare`, also p-values against the first run.

    If there are more than `MOST_COLUMNS` measures, each of them is a row.
    """
    from keystone.runs.evaluation.compare import run_paired_test

    measures = list(evaluations[0].values)
    wide = len(measures) > MOST_COLUMNS
    rows = [[f"{'measure' if wide else 'run'}{mark_lists(evaluations[0])}", *measures]]
    for evaluation in evaluations:
        means = (format_mean(evaluation.mean(measure)) + mark_circle(evaluation) for measure in measures)
        rows.append([evaluation.name, *means])
        if compare and evaluation is not evaluations[0]:
            p = run_paired_test(evaluations[0], evaluation)
            rows.append([P_VALUES, *(format_p_value(p[measure]) for measure in measures)])
    head, *others = zip(*rows, strict=True) if wide else rows
    print_columns(head, others, out=out)
    if any(map(mark_circle, evaluations)):
        print(f"\n{CIRCLE_TEXT}", file=out)


def print_columns(
    head: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[int] = (0,), out: TextIO | None = None
) -> None:
    """Print a table as wide as the terminal, or else 200 columns wide. Its texts are neither markup nor emoji.

    It goes to `out`, by default to standard output. The columns at the places `left` hold texts, the others numbers,
    which end together. Rows of p-values are dim. A table without any head has no line of heads.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=any(head))
    for place, name in enumerate(head):
        table.add_column(escape_controls(name), overflow="fold", justify="left" if place in left else "right")
    for row in rows:
        table.add_row(*map(escape_controls, row), style="dim" if row[0] == P_VALUES else None)
    width = None if (out or sys.stdout).isatty() else 200
    Console(file=out, width=width, markup=False, emoji=False).print(table)


def print_topics(evaluation: "Evaluation") -> None:
    """Print the values of a run: a row for each topic, a last row of means, and a column for each measure."""
    columns = [list(map(format_mean, own.tolist())) for own in evaluation.values.values()]
    rows = [*zip(evaluation.topics, *columns, strict=True)]
    rows.append(("mean", *(format_mean(evaluation.mean(measure)) for measure in evaluation.values)))
    print_columns([evaluation.name, *evaluation.values], rows)
    print()


def print_differences(evaluations: "Sequence[Evaluation]") -> None:
    """Print how each later run differs from the first: a row for each measure, with interval, effect and tests."""
    from keystone.runs.evaluation.compare import compare_runs

    first, *others = evaluations
    for other, found in zip(others, compare_runs(evaluations), strict=True):
        print(f"\n{escape_controls(other.name)} against {escape_controls(first.name)}{mark_lists(first)}:")
        rows = []
        for measure, own in found.items():
            numbers = f"{own.mean:+.4f}", f"{own.low:+.4f} to {own.high:+.4f}", f"{own.effect:+.2f}"
            cells = ("-" if "nan" in number else number for number in numbers)
            rows.append([measure, *cells, format_p_value(own.p_t), format_p_value(own.p_randomisation)])
        print_columns(("measure", "difference", "95 % interval", "Cohen's d", "p (t-test)", "p (randomisation)"), rows)
    corrected = f", corrected by Holm for {len(others)} runs" if len(others) > 1 else ""
    print(f"\nThe tests are paired and two-sided{corrected}.")


def mark_circle(evaluation: "Evaluation") -> str:
    """Return the mark beside the figures of a run whose own grades judge it."""
    return "*" if evaluation.circular_rows else ""


def mark_lists(evaluation: "Evaluation") -> str:
    """Return the mark beside the names of runs whose rows without a judgment were left out."""
    return " (condensed lists)" if evaluation.condensed else ""


def format_p_value(p: float) -> str:
    """Format a p-value with three digits; NaN gives `-`."""
    if math.isnan(p):
        return "-"
    return "< .001" if p < 0.001 else f"{p:.3f}"


def format_mean(mean: float) -> str:
    """Format a mean with four digits, or a large one with one digit; NaN gives `-`."""
    return "-" if math.isnan(mean) else f"{mean:.4f}" if mean < 10 else f"{mean:,.1f}"


def print_cautions(evaluations: "Sequence[Evaluation]", quiet: bool = False) -> None:
    """Print a warning for each caution on standard error; unless `quiet`, also how much of each run is judged."""
    from keystone.runs.evaluation.compare import collect_cautions

    for evaluation in evaluations if not quiet else []:
        say(f"{evaluation.name}: {evaluation.counts}", err=True)
    for caution in collect_cautions(evaluations):
        say(f"warning: {caution}", err=True)


def print_tuning(tuning: "Tuning", out: TextIO | None = None) -> None:
    """Print all settings, best first; then the held-out choice beside the configuration; then the recommendation."""
    first = tuning.measure
    configured = replace(tuning.configured, name="as configured")
    trials = [
        replace(evaluation, name=evaluation.name if tuning.by_fold else " ".join(setting))
        for setting, evaluation in tuning.trials.items()
    ]
    print_evaluations(sorted([configured, *trials], key=lambda trial: -trial.mean(first)), False, out)
    print_choice(tuning, out)


def print_choice(tuning: "Tuning", out: TextIO | None = None) -> None:
    """Print the held-out choice beside the configuration, then the recommendation."""
    from keystone.runs.evaluation.compare import run_paired_test
    from keystone.runs.evaluation.tune import write_snippet

    first, configured = tuning.measure, replace(tuning.configured, name="as configured")
    print(file=out)
    whole = [replace(tuning.whole, name="whole narrative")] if tuning.whole else []
    print_evaluations([configured, tuning.held_out, *whole], out=out)
    for number, chosen in enumerate(tuning.by_fold, 1):
        print(f"chosen without fold {number}: {escape_controls(chosen)}", file=out)
    settings = " ".join(f"--set {quote(part)}" for part in tuning.recommended) or "the settings as configured"
    if tuning.by_fold and tuning.recommended:
        settings = f"these weights, as a part of the YAML file\n\n{write_snippet(tuning.recommended)}"
    verdict = "are better" if tuning.beaten else "are not better"
    numbers = f"{first} {tuning.held_out.mean(first):.4f} against {configured.mean(first):.4f}"
    p = format_p_value(run_paired_test(configured, tuning.held_out)[first])
    print(f"\nRecommended: {settings}", file=out)
    print(f"On topics that had no part in the choice, chosen settings {verdict}: {numbers}, p {p}.", file=out)


def print_sweep(sweep: "Sweep") -> None:
    """Print each setting with its measures, its cost and the folder of its run, best first; then the choice."""
    tuning = sweep.tuning
    evaluations, rows = {(): tuning.configured, **tuning.trials}, []
    for setting, found in sorted(evaluations.items(), key=lambda item: -item[1].mean(tuning.measure)):
        point = sweep.points[setting]
        means = (format_mean(found.mean(measure)) + mark_circle(found) for measure in found.values)
        cost = f"{point.cost.calls:,}", f"{point.cost.tokens:,}", f"{point.cost.seconds:,.1f}"
        rows.append([" ".join(setting) or "as configured", *means, *cost, point.directory.parent.name])
    head = ["settings", *tuning.configured.values, "calls", "tokens", "seconds", "folder"]
    print_columns(head, rows, left=(0, len(head) - 1))
    if any(map(mark_circle, evaluations.values())):
        print(f"\n{CIRCLE_TEXT}")
    print_choice(tuning)


def print_reliability(held_out: Mapping[str, Any]) -> None:
    """Print how reliable the probabilities of a calibration are on topics that it was not fitted on.

    The set F1 of fixed depths follows, and shows whether chosen depths are better.
    """
    from keystone.fusion.depth import LEAST_TOP_PROBABILITY

    say("rows, mean probability, share of relevant rows:")
    for one in held_out["reliability"]:
        if one["rows"]:
            say(f"{one['rows']:>9,}  {one['probability']:.3f}  {one['relevant']:.3f}")
    top = f"{held_out['top_calibration_error']:.3f} for rows of {LEAST_TOP_PROBABILITY:g} or more"
    say(f"expected calibration error {held_out['calibration_error']:.3f}, {top}")
    fixed: Mapping[str, float] = held_out["fixed_set_f1"]
    say(f"set F1 {held_out['set_f1']:.3f} with {held_out['rows']:.1f} rows a topic; with a fixed depth:")
    say(", ".join(f"{depth} {value:.3f}" for depth, value in fixed.items()))
    best = max(fixed, key=lambda depth: fixed[depth])
    if fixed[best] >= held_out["set_f1"]:
        say(f"On these topics, the fixed depth {best} is no worse than chosen ones.")
