"""The command `keystone reproduce-track`: the published baselines of a track, made again as far as possible."""

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.options import Json, Quiet
from keystone.runs.report.say import say, say_result

if TYPE_CHECKING:
    from keystone.runs.evaluation.reproduce_track import Figure, Plan


def reproduce_track(
    track: Annotated[str, typer.Argument(metavar="TRACK", help="rag24, rag25 or rag26-dev.")],
    out: Annotated[Path, typer.Option(help="The folder for indexes, runs and figures.")] = Path("out"),
    index: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FOLDER: the folder of a prebuilt index of that name, or Keystone's index of one. Repeatable.",
            show_default="those in the cache of Pyserini",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The folder with topics and judgments under their published names.",
            show_default="the cache of Pyserini",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands and the published figures only.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the published baselines of a track again, and compare their figures.

    A baseline whose index, topics or judgments are not on this machine is left out, and a line says what it lacks. If
    a figure differs by more than .001, or a command fails, the exit code is 1.

    Example: keystone reproduce-track rag25 --data anserini-tools --index msmarco-v2.1-doc-segmented=/data/lucene
    """
    from keystone.runs.evaluation.reproduce_track import CACHE, Places, perform, plan_track

    places = Places(out, dict(map(_parse_place, index or [])), data or CACHE.expanduser() / "topics-and-qrels")
    if data is not None and not data.is_dir():
        raise UserError(f"--data {data}: found no folder; expected one with topics and judgments")
    failed, told = False, []
    for plan in plan_track(track, places):
        error = perform(plan, quiet) if plan.runs and not dry_run else ""
        figures = plan.list_figures()
        failed = failed or bool(error) or any(one.differs for one in figures)
        if json:
            own = {
                "name": plan.baseline.name,
                "source": plan.baseline.source,
                "commands": [one.words for one in plan.steps],
            }
            told.append({**own, "lacks": plan.lacks, "error": error, "figures": figures})
        else:
            _print_plan(plan, figures, error)
    if json:
        say_result("reproduce-track", track, {"baselines": told})
    if failed:
        raise typer.Exit(1)


def _parse_place(option: str) -> tuple[str, Path]:
    name, equals, folder = option.partition("=")
    if not (name and equals and folder):
        raise UserError(f"--index {option}: expected NAME=FOLDER")
    return name, Path(folder)


def _print_plan(plan: "Plan", figures: "list[Figure]", error: str) -> None:
    """Print a baseline: its commands, what it lacks, and its figures as published and as found."""
    import shlex

    say(f"{plan.baseline.name} ({plan.baseline.source})")
    for step in plan.steps:
        say(f"  keystone {shlex.join(step.words)}")
    for judgments, own in groupby(figures, key=lambda one: one.judgments):
        say(f"  {judgments}: {', '.join(map(_describe, own))}")
    for reason in plan.lacks:
        say(f"  left out: {reason}")
    if error:
        say(f"  failed: {error}", err=True)


def _describe(figure: "Figure") -> str:
    published = "not published" if figure.expected is None else f"{figure.expected:.4f}"
    if figure.found is None:
        return f"{figure.measure} {published}"
    return f"{figure.measure} {published}, found {figure.found:.4f}{' (differs)' if figure.differs else ''}"
