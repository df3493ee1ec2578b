"""The commands `keystone run`, `answer`, `record`, `bundle`, `reproduce` and `reproduce-track`."""

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.options import (
    CORES,
    BudgetLimits,
    Json,
    Overrides,
    Preset,
    Quiet,
    Threads,
    check_outputs,
    check_run_outputs,
    complete_preset,
    name_config,
    read_with_budget,
)
from keystone.runs.report.say import say, say_result
from keystone.runs.wording import plural

if TYPE_CHECKING:
    from keystone.runs.evaluation.reproduce_track import Figure, Plan
    from keystone.runs.exchange.bundle.reproduce import Reproduction
    from keystone.runs.pipeline.directory import Stage


def run(
    config: Annotated[Path | None, typer.Argument(help="The YAML file that describes the run.")] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="A preset, whose values the file overrides: bm25, keystone, ... See the page on runs.",
            autocompletion=complete_preset,
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(help="The index to search, in place of the key index.", show_default="as the file says"),
    ] = None,
    topics: Annotated[
        Path | None,
        typer.Option(
            help="The narratives, in any form (see the page on corpora), in place of the key topics.",
            show_default="as the file says",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder of runs, in place of the key out. The run directory is OUT/RUN_ID.",
            show_default="as the file says, else out",
        ),
    ] = None,
    set: Overrides = None,
    budget: BudgetLimits = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print the stages, and the most calls, tokens and cost. Write nothing and ask no model."
        ),
    ] = False,
    retry_unusable: Annotated[
        bool, typer.Option("--retry-unusable", help="Ask the model again for replies that no step could use.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with exit code 1 if the model gave no usable reply in any step.")
    ] = False,
    json: Json = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Make or finish a run: queries, rankings, grades, answers, files to submit. --budget limits its cost.

    If the command is interrupted, the same command continues.

    If the command writes requests that wait for replies (model.backend: batch), the exit code is 3.

    Example: keystone run run.yaml --set track=rag26 --set team_id=my-team

    Example: keystone run --preset bm25 --index index --topics topics.tsv
    """
    from keystone.runs.config.read import read_config
    from keystone.runs.python.checks import write_override

    paths = {"index": index, "topics": topics, "out": out}
    set = [*(set or ()), *(write_override(key, str(path)) for key, path in paths.items() if path is not None)]
    if config is None and preset is None and not set:
        raise UserError("found no YAML file, no --preset and no --set, expected at least one of them")
    source = config or (f"--preset {preset}" if preset else "--set")
    settings = read_with_budget(lambda own: read_config(config, [*own], preset), set, budget, str(source))

    from keystone.runs.pipeline import manifest
    from keystone.runs.pipeline.run import run as make_run
    from keystone.runs.report.terminal import progress_bars

    check_run_outputs(settings, [name_config(config)], {"the run directory": settings.out / settings.run_id})
    if idle := manifest.warn_of_idle_model(settings):
        say(f"warning: {idle}", err=True)
    if dry_run:
        from keystone.runs.report.foresight import foresee_run, format_foresight, list_foresight

        foresight = foresee_run(settings, threads, retry_unusable)
        if json:
            say_result("run", config, list_foresight(foresight))
            return
        for line in format_foresight(foresight):
            say(line)
        return

    kept, made = list[str](), list[str]()

    def announce(stage: "Stage", reused: bool) -> None:
        (kept if reused else made).append(stage.name)

    with progress_bars(quiet) as progress:
        directory = make_run(settings, threads, progress, announce, retry=retry_unusable)
    if not quiet:
        done = [f"{word} {', '.join(names)}" for word, names in (("made", made), ("kept", kept)) if names]
        say(f"{settings.run_id}: {'; '.join(done)}", err=True)
        for line in manifest.list_remarks(directory):
            say(line, err=True)
    if settings.has_default_team and not quiet:
        say(f"warning: team_id: {settings.team_id!r} is the default: set your team's name before you submit", err=True)
    unusable = manifest.warn_of_unusable_replies(directory)
    for warning in (manifest.warn_of_reranker(directory), manifest.warn_of_cut_prompts(directory), unusable):
        if warning:
            say(f"warning: {warning}", err=True)
    if json:
        say_result("run", config, {"directory": directory})
    else:
        say(directory)
    if strict and unusable:
        raise typer.Exit(1)


def answer(
    config: Annotated[
        Path | None, typer.Argument(help="A YAML file, as for run. The command ignores its topics.")
    ] = None,
    topics: Annotated[
        Path, typer.Option(help="Narratives, in any form (see the page on corpora); - reads them from a pipe.")
    ] = Path("-"),
    index: Annotated[
        Path | None, typer.Option(help="The index with the documents.", show_default="that of the YAML file, or index")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write, or to continue.", show_default="standard output")
    ] = None,
    preset: Preset = None,
    set: Overrides = None,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Answer narratives as they arrive: one line of the track's answer file for each, in any order.

    If the command is interrupted, the same command continues and skips topics that the file already answers.

    Example: keystone answer --topics topics.jsonl --index index --out answers.jsonl
    """
    from keystone.runs.config.read import make_config
    from keystone.runs.pipeline.answering import answer_to_file
    from keystone.runs.report.terminal import progress_bars

    with progress_bars(quiet) as progress:
        settings = make_config(config, set or [], preset, topics, index)
        check_run_outputs(settings, [name_config(config)], {"--out": out})
        notes = list[str]()
        missed = answer_to_file(settings, out, threads, progress, notes.append)
    notes += [f"{fallback.topic_id}: {fallback.step}: {fallback.reason}" for fallback in missed]
    for line in notes if not quiet else []:
        say(line, err=True)


def record(
    replies: Annotated[Path, typer.Argument(help="The stored replies of a run, such as out/replies.sqlite.")],
    out: Annotated[Path, typer.Option(help="The JSONL file to write.")],
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Write a model's replies to a file, from which the run can be repeated without the model.

    Example: keystone record out/replies.sqlite --out replies.jsonl
    """
    from keystone.generation.llm import replay

    check_outputs([replies], {"--out": out})
    number = replay.record_replies(replies, out)
    if json:
        say_result("record", replies, {"out": out, "replies": number})
    else:
        say(f"{out}: {plural(number, 'reply', 'replies')}")


def bundle(
    directory: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of a finished run.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write.", show_default="RUN_DIR with the ending .bundle.zip")
    ] = None,
    json: Json = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Pack a run into one file, from which `reproduce` makes it again without corpus, model or network.

    The file holds the configuration, the rankings, the model's replies, and the documents that the run read.

    Example: keystone bundle out/my-run
    """
    from keystone.indexing.embedder import Effort
    from keystone.indexing.io.reading import hash_file
    from keystone.runs.exchange.bundle.write import write_bundle
    from keystone.runs.pipeline.made_config import read_run_config
    from keystone.runs.report.terminal import progress_bars

    directory = directory if directory.name not in ("", "..") else directory.resolve()
    out = out or directory.with_name(f"{directory.name}.bundle.zip")
    if out.suffix != ".zip":
        raise UserError(f"--out {out}: expected a name that ends with .zip")
    check_run_outputs(read_run_config(directory), [directory], {"--out": out})
    with progress_bars(quiet) as progress:
        found = write_bundle(directory, out, Effort(threads, progress))
    if json:
        say_result("bundle", directory, {"out": out, "sha256": hash_file(out), **asdict(found)})
        return
    for stage, reason in found.stored.items():
        say(f"{stage}: stored only: {reason}")
    say(f"{plural(found.vectors, 'vector')}, {plural(found.replies, 'reply', 'replies')}")
    say(f"documents with their text: {found.documents:,}; mind the licence of the corpus before you pass the file on")
    say(f"{out}: SHA-256 {hash_file(out)}")


def reproduce(
    file: Annotated[Path, typer.Argument(help="A file made by `keystone bundle`.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder for the artifacts that are made again.", show_default="none is kept")
    ] = None,
    most_gb: Annotated[float, typer.Option(min=0, help="The most gigabytes that the bundle may unpack to.")] = 8,
    json: Json = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Make a run again from its bundle, and compare each file.

    If a file differs, the exit code is 1.

    Example: keystone reproduce my-run.bundle.zip
    """
    from keystone.indexing.embedder import Effort
    from keystone.runs.exchange.bundle.reproduce import reproduce as reproduced
    from keystone.runs.report.terminal import progress_bars

    check_outputs([file], {"--out": out})
    with progress_bars(quiet) as progress:
        found = reproduced(file, out, Effort(threads, progress), most_gb)
    differing = sum(bool(one.difference) for one in found.remade)
    if json:
        say_result("reproduce", file, found)
    else:
        _print_reproduction(found, differing)
    if differing:
        raise typer.Exit(1)


def _print_reproduction(found: "Reproduction", differing: int) -> None:
    for stage, reason in found.stored.items():
        say(f"{stage}: stored only, not made again: {reason}")
    for one in found.remade:
        say(f"{one.name}: {one.difference or 'the same bytes'}")
    say(f"{plural(len(found.remade), 'artifact')} made again, {differing or 'none'} of them with other bytes")
    for name, (then, now) in found.versions.items() if differing else ():
        say(f"{name}: the run was made by version {then}, this is {now}")


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
