"""The command `keystone judge battles`: a tournament of answer files, and its leaderboard."""

from pathlib import Path
from typing import Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.commands.report_command import check_picture
from keystone.runs.cli.options import REPORTED_RECORDS, Json, Overrides, Quiet
from keystone.runs.report.say import say, say_result, say_warnings


def battles(
    answers: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="ANSWERS...",
            help="Run directories, answer files of any track, or rows of RAGDoll, each with one run.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for the files of the arena.")] = Path("arena"),
    judgments: Annotated[
        Path | None,
        typer.Option(help="Judge nothing: rank by this judgments.jsonl, pairwise.csv, or folder of an arena."),
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="Judge without a model, by the words of the request that answers cover.")
    ] = False,
    both_orders: Annotated[
        bool,
        typer.Option("--both-orders", help="Judge each pair in both orders, and fit the worth of the first slot."),
    ] = False,
    repeats: Annotated[int, typer.Option(min=1, help="How often the model judges each battle.")] = 1,
    adaptive: Annotated[
        bool,
        typer.Option("--adaptive", help="Judge the battles that say most about the order, at most half of all."),
    ] = False,
    seed: Annotated[int, typer.Option(help="The seed of the order in which two answers are shown.")] = 13,
    plot: Annotated[Path | None, typer.Option(help="Draw the leaderboard: a .svg or .png file.")] = None,
    topics: Annotated[
        Path | None,
        typer.Option(
            help="The narratives, in any form (see the page on corpora).",
            show_default="those of the answers, or of the run",
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A YAML file, as for run, whose model judges.")] = None,
    set: Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print battles, calls, tokens and cost at most. Ask no model.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Judge answers of several runs against each other, and rank the runs by Bradley-Terry.

    Example: keystone judge battles out/first out/second other.jsonl --config model.yaml --out arena --plot arena.svg
    """
    from keystone.runs.cli.commands.evaluate_command import read_model_settings
    from keystone.runs.cli.outputs import check_outputs, check_run_outputs
    from keystone.runs.evaluation.answers.asked import find_narratives, read_narratives
    from keystone.runs.evaluation.arena.answers import read_answer_sets
    from keystone.runs.evaluation.arena.files import read_arena, write_arena
    from keystone.runs.evaluation.arena.judge import RULES, foresee_battles, run_battles
    from keystone.runs.evaluation.arena.tournament import Settings, make_leaderboard
    from keystone.runs.pipeline.model_runner import open_model_runner
    from keystone.runs.report.arena import describe_leaderboard, draw_leaderboard, print_leaderboard, tell_foreseen
    from keystone.runs.report.plots import write_figure
    from keystone.runs.report.terminal import progress_bars

    if plot is not None:
        check_picture(plot)
    if judgments is not None:
        if answers:
            raise UserError("--judgments: expected without answers, since nothing is judged")
        check_outputs([judgments], {"--plot": plot})
        arena = read_arena(judgments)
        board, files = make_leaderboard(arena.judgments, arena.run_ids, arena.judge), [judgments]
    else:
        if not answers:
            raise UserError("expected answers to judge, or --judgments")
        if rules and (config is not None or set or repeats > 1):
            raise UserError("--rules: expected without a model and without --repeats, since rules always say the same")
        files, played = answers, Settings(seed, both_orders, repeats, adaptive)
        settings = None if rules else read_model_settings(config, set)
        if (
            repeats > 1
            and settings
            and settings.model
            and (fixed := {"temperature", "seed"} & settings.model.extra.keys())
        ):
            raise UserError(f"model.extra.{min(fixed)}: expected none with --repeats, whose replies are samples")
        if settings is not None and settings.model is None:
            raise UserError("model: missing; expected a language model, with its name and urls, or --rules")
        read = [*(path for path in answers if not path.is_dir()), topics, config]
        if settings is None:
            check_outputs(read, {"--out": out, "--plot": plot})
        else:
            check_run_outputs(settings, read, {"--out": out, "--plot": plot})
        known = read_narratives(answers, topics) if topics else find_narratives(answers)
        sets, narratives = read_answer_sets(answers, known)
        model = settings.model if settings else None
        if dry_run:
            for line in tell_foreseen(
                *foresee_battles(sets, narratives, played, model), model.prices if model else None
            ):
                say(line)
            return
        with progress_bars(quiet) as progress, progress("Judging", None):
            if settings is None or settings.model is None:
                done, provider = run_battles(sets, narratives, played, folder=out), RULES
            else:
                provider = settings.model.backend
                with open_model_runner(settings, None) as ask:
                    done = run_battles(sets, narratives, played, ask, settings.model.name, out)
        board = done.board
        write_arena(out, done.judgments, done.shown, board, provider)
        say_warnings(done.cautions, REPORTED_RECORDS)
    if plot is not None:
        write_figure(draw_leaderboard(board), plot)
    if json:
        written = {} if judgments is not None else {"out": out}
        say_result("judge battles", files, {**written, **describe_leaderboard(board)})
        return
    print_leaderboard(board)
    if judgments is None:
        say(out)
    if plot is not None:
        say(plot)
