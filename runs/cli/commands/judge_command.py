"""The commands `keystone judge`, `judge use`, `judge pair` and `judge battles`, which make judgments."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from keystone.indexing.errors import UserError
from keystone.runs.cli.commands.report_command import check_picture
from keystone.runs.cli.leaderboard import list_files
from keystone.runs.cli.options import (
    CORES,
    DEFAULT_MEASURE,
    REPORTED_RECORDS,
    Json,
    Overrides,
    Quiet,
    Threads,
    check_outputs,
    check_run_outputs,
    name_config,
    open_runner,
    read_measure,
    read_model_settings,
)
from keystone.runs.report.say import say, say_result, say_warnings
from keystone.runs.wording import plural

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from keystone.runs.evaluation.judging.judge import Judged


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
        bool, typer.Option("--dry-run", help="Print the most battles, calls, tokens and cost. Ask no model.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Judge answers of several runs against each other, and rank the runs by Bradley-Terry.

    Example: keystone judge battles out/first out/second other.jsonl --config model.yaml --out arena --plot arena.svg
    """
    from keystone.runs.config.run_config import MISSING_MODEL
    from keystone.runs.evaluation.answers.files import find_narratives, read_narratives
    from keystone.runs.evaluation.arena.answers import read_answer_sets
    from keystone.runs.evaluation.arena.play import RULES, foresee_battles, read_arena, run_battles, write_arena
    from keystone.runs.evaluation.arena.tournament import Settings, make_leaderboard
    from keystone.runs.pipeline.model_runner import open_model_runner
    from keystone.runs.report.foresight import list_calls
    from keystone.runs.report.judging import print_leaderboard, tell_foreseen
    from keystone.runs.report.plots import draw_leaderboard, write_figure
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
        if settings is not None:
            settings.refuse_fixed_samples(repeats)
            settings.require_model(f"{MISSING_MODEL}, or --rules")
        read = [*(path for path in answers if not path.is_dir()), topics, name_config(config)]
        check_run_outputs(settings, read, {"--out": out, "--plot": plot})
        known = read_narratives(answers, topics) if topics else find_narratives(answers)
        sets, narratives = read_answer_sets(answers, known)
        model = settings.model if settings else None
        if dry_run:
            number, foreseen = foresee_battles(sets, narratives, played, model)
            prices = model.prices if model else None
            if json:
                calls = list_calls([foreseen] if foreseen else [], prices)
                say_result("judge battles", files, {"battles": number, **calls})
                return
            for line in tell_foreseen(number, foreseen, prices):
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
        say_result("judge battles", files, {**written, **asdict(board)})
        return
    print_leaderboard(board)
    if judgments is None:
        say(out)
    if plot is not None:
        say(plot)


class JudgeCommands(TyperGroup):
    """The kinds of judgments. If the arguments name none, as in `keystone judge RUN...`, the kind is `default`."""

    default = "runs"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the command before them if they begin without one."""
        named = not args or args[0] in self.commands or args[0] == "--help"
        return super().parse_args(ctx, args if named else [self.default, *args])


judge = typer.Typer(
    name="judge",
    cls=JudgeCommands,
    help="Judge runs, the use of answers, or answers against others by a language model. Without a command: runs.",
)

judge.command()(battles)

Topics = Annotated[
    Path | None,
    typer.Option(
        help="The narratives, in any form (see the page on corpora).", show_default="those of the run directory"
    ),
]
ModelConfig = Annotated[Path | None, typer.Option(help="A YAML file, as for run, whose model judges.")]


@judge.command(JudgeCommands.default)
def judge_runs(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run files, folders of them, or run directories, to be pooled."),
    ],
    config: Annotated[
        Path | None, typer.Option(help="A YAML file, as for run, with the index, the topics and the model.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The file of judgments to write.")] = Path("judged.qrels"),
    depth: Annotated[int, typer.Option(min=1, help="How many documents of each run and topic are judged.")] = 20,
    repeats: Annotated[
        int, typer.Option(min=1, help="How often the model grades each document. The median counts.")
    ] = 1,
    cascade: Annotated[
        bool,
        typer.Option("--cascade", help="Ask a second prompt, and a third if two grades differ by 2 or more."),
    ] = False,
    against: Annotated[Path | None, typer.Option(help="Other judgments, to compare with.")] = None,
    relevant_from: Annotated[
        int, typer.Option(min=1, help="The grade from which a document is relevant for the binary kappa.")
    ] = 1,
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", "-m", help="The measure that orders the runs.", show_default=DEFAULT_MEASURE),
    ] = None,
    set: Overrides = None,
    json: Json = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Judge the first documents of runs by a language model (UMBRELA), and compare with other judgments.

    Example: keystone judge a.trec b.trec --config model.yaml --depth 20 --out judged.qrels --against qrels.txt
    """
    from keystone.generation.grading.umbrela import JudgeSettings
    from keystone.runs.config.read import read_config
    from keystone.runs.evaluation.circular import name_record
    from keystone.runs.evaluation.judging.judge import Pool, compare_with, judge_files
    from keystone.runs.pipeline.job import open_job
    from keystone.runs.report.judging import list_comparison, print_comparison
    from keystone.runs.trec.run_files import read_qrels, read_unsorted_run

    if cascade and repeats > 1:
        raise UserError(f"found --cascade and --repeats {repeats}, expected one of them")
    ordered_by, runs = read_measure(measure), list_files(runs)
    settings = read_config(config, ["run_id=judge", *(set or ())] if config is None else set)
    settings.require_model()
    settings.refuse_fixed_samples(repeats)
    read, outputs = [*runs, name_config(config), against], {"--out": out, "the record of --out": name_record(out)}
    check_run_outputs(settings, read, outputs)
    pool = Pool({path: read_unsorted_run(path) for path in runs}, depth)
    if against is not None:
        read_qrels(against)
    with open_runner(settings, "Judging", quiet) as with_model:
        judged = judge_files(open_job(settings, threads), with_model, pool, JudgeSettings(repeats, cascade), out)
    number, judge_name = len(judged.judgments), judged.judgments[0].graded_by
    if not json:
        say(f"{out}: {plural(number, 'judgment')} by {judge_name}")
    say_warnings(_list_warnings(judged, pool.topics))
    comparison = None if against is None else compare_with(out, against, pool, ordered_by)
    if json:
        agreement = comparison and list_comparison(comparison, relevant_from)
        told = {"out": out, "judgments": number, "graded_by": judge_name, "agreement": agreement}
        say_result("judge", runs, told)
    elif comparison is not None and against is not None:
        print_comparison(comparison, against, relevant_from, str(ordered_by))


@judge.command()
def use(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Run directories, or answer files of any track.")
    ],
    questions: Annotated[
        Path | None,
        typer.Option(
            help="A run directory, or a file in the form of its queries.jsonl, with the questions of each narrative.",
            show_default="the first run directory",
        ),
    ] = None,
    topics: Topics = None,
    references: Annotated[
        Path | None, typer.Option(help="References to compare with: a JSON object a topic. See the page on evaluation.")
    ] = None,
    config: ModelConfig = None,
    set: Overrides = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Judge how useful answers are: which questions they answer, and which sentences help.

    Example: keystone judge use out/my-run --config model.yaml
    """
    from keystone.runs.evaluation.answers.evaluate_answers import judge_files
    from keystone.runs.evaluation.answers.files import read_asked
    from keystone.runs.evaluation.tune import list_means
    from keystone.runs.evaluation.use import name_use_file
    from keystone.runs.report.terminal import print_cautions, print_evaluations

    settings = read_model_settings(config, set)
    given = [path for path in [*files, questions] if path is None or not path.is_dir()]
    read = [*given, topics, references, name_config(config)]
    check_run_outputs(settings, read, {f"the judgments of {path}:": name_use_file(path) for path in files})
    asked = read_asked(files, questions, topics)
    with open_runner(settings, "Judging", quiet) as with_model:
        evaluations = judge_files(files, asked, references, settings, with_model)
    written = list(map(name_use_file, files))
    if json:
        say_result("judge use", files, {"files": written, "means": list(map(list_means, evaluations))})
    else:
        print_evaluations(evaluations, compare=False)
        for path in written:
            say(path)
    print_cautions(evaluations, quiet=True)


@judge.command()
def pair(
    first: Annotated[Path, typer.Argument(metavar="A", help="A run directory, or an answer file of any track.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The one to compare with.")],
    out: Annotated[Path, typer.Option(help="The file of verdicts to write.")] = Path("battles.jsonl"),
    topics: Topics = None,
    config: ModelConfig = None,
    set: Overrides = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Judge which of two answers to each narrative is better, in both orders, with marks and reasons.

    Example: keystone judge pair out/first out/second --config model.yaml --out battles.jsonl
    """
    from keystone.runs.evaluation.answers.files import read_narratives
    from keystone.runs.evaluation.battles import judge_pair, summarise_pair, write_verdicts
    from keystone.runs.report.judging import describe_summary, print_pair

    settings = read_model_settings(config, set)
    check_run_outputs(settings, [first, second, topics, name_config(config)], {"--out": out})
    narratives = read_narratives([first, second], topics)
    with open_runner(settings, "Judging", quiet) as with_model:
        found, judged = judge_pair((first, second), narratives, settings, with_model)
    say_warnings(found.cautions)
    summary = summarise_pair(found)
    if not json:
        print_pair(found, summary)
    write_verdicts(out, found, judged)
    if json:
        say_result("judge pair", [first, second], {"out": out, **describe_summary(found, summary)})
    else:
        say(out)


def _list_warnings(judged: "Judged", topics: "AbstractSet[str]") -> list[str]:
    found = [*judged.failures[:REPORTED_RECORDS]]
    if left := len(judged.failures) - len(found):
        found.append(f"{plural(left, 'further document')} without a grade")
    if judged.unknown:
        number = plural(len(judged.unknown), "document")
        found.append(f"{number} of the runs not in the index and not judged, such as {judged.unknown[0]}")
    if missing := sorted(topics - judged.topics):
        found.append(f"{plural(len(missing), 'topic')} of the runs without a narrative, such as {missing[0]}")
    return found
