"""What a person sees: progress bars on standard error, tables on standard output."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from indexing.types import Progress, Tick, silent
from indexing.words import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runs.evaluate import Evaluation
    from runs.tune import Tuning


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Progress]:
    """A `Progress` that shows a bar for each step on standard error, or nothing."""
    if quiet:
        yield silent
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bars
    from rich.text import Text

    class RateColumn(ProgressColumn):
        """Items a second: lately, and in all once the step is done."""

        def render(self, task: Task) -> Text:
            rate = task.finished_speed or task.speed
            return Text(f"{rate:,.0f}/s" if rate else "", style="progress.data.speed")

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
    )
    bars = Bars(*columns, console=Console(stderr=True))

    @contextmanager
    def step(description: str, total: int | None) -> Iterator[Tick]:
        bars.start()  # with the first bar: where there is none, nothing is drawn
        task = bars.add_task(description, total=total)
        yield lambda items: bars.advance(task, items)
        bars.update(task, total=bars.tasks[task].completed or 1, completed=bars.tasks[task].completed or 1)

    try:
        yield step
    finally:
        if bars.live.is_started:
            bars.stop()


def print_evaluations(evaluations: "Sequence[Evaluation]", compare: bool = True) -> None:
    """One row a run, one column a measure; if asked, under each later run its p-values against the first."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from runs.evaluate import paired_test

    measures = list(evaluations[0].values)
    table = Table(box=None, pad_edge=False)
    table.add_column("run", overflow="fold")
    for measure in measures:
        table.add_column(measure, justify="right")
    for evaluation in evaluations:
        table.add_row(escape(plain(evaluation.name)), *(f"{evaluation.mean(measure):.4f}" for measure in measures))
        if compare and evaluation is not evaluations[0]:
            p = paired_test(evaluations[0], evaluation)
            table.add_row("  p (paired t-test)", *(f"{p[measure]:.3f}" for measure in measures), style="dim")
    wide = None if sys.stdout.isatty() else 200
    Console(width=wide).print(table)


def print_tuning(tuning: "Tuning") -> None:
    """All settings, best first, then the choice for topics not seen beside the whole narrative."""
    from dataclasses import replace

    first = next(iter(tuning.whole.values))
    trials = [replace(evaluation, name=" ".join(setting)) for setting, evaluation in tuning.trials.items()]
    trials.sort(key=lambda evaluation: -evaluation.mean(first))
    print_evaluations(trials, compare=False)
    print()
    print_evaluations([replace(tuning.whole, name="whole narrative"), tuning.held_out])
    print(f"\nBest on all topics: {' '.join(f'--set {part}' for part in trials[0].name.split(' '))}")
