"""The commands `keystone evaluate` and `keystone score`."""

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.leaderboard import (
    MOST_COMPARED,
    Asked,
    find_topics_file,
    list_files,
    make_board,
    print_board,
    read_topic_ids,
    say_as_json,
    write_json,
)
from keystone.runs.cli.options import (
    Baseline,
    BudgetLimits,
    ByTopic,
    Format,
    Json,
    JsonFile,
    OnlyTable,
    Overrides,
    Pairs,
    Quiet,
    SkipBad,
    SkipOwn,
    Sort,
    check_outputs,
    check_run_outputs,
    complete_setting,
    name_config,
    open_runner,
    read_model_settings,
    read_with_budget,
)
from keystone.runs.report.say import say, say_result, say_warnings
from keystone.runs.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keystone.runs.config.run_config import RunConfig
    from keystone.runs.evaluation import sheet as sheets
    from keystone.runs.evaluation.answers.evaluate_answers import Comparison
    from keystone.runs.evaluation.evaluate import Evaluation
    from keystone.runs.evaluation.judging.redraw import NoisyMeans
    from keystone.runs.evaluation.measures import Measure


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Run files, folders of them, or run directories, whose last ranking counts; with --answers, answer "
            "files or run directories. The command compares the others with the first one.",
        ),
    ],
    qrels: Annotated[
        list[Path] | None,
        typer.Option(help="Judgments of runs: see the page on corpora. Repeat for several judges, which are compared."),
    ] = None,
    answers: Annotated[bool, typer.Option("--answers", help="Measure answers. See the page on evaluation.")] = False,
    references: Annotated[
        Path | None, typer.Option(help="References of answers: a JSON object a topic, or BioGen's .csv.")
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            "-m",
            help="A measure, such as nDCG@20, MAP, judged@10 or RBP(p=0.8); with --answers ROUGE-L, context, EM, "
            "P-EM, F1-5, F1*, ids, documents, form, use, agreement, LR or pairwise. Repeat for several.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file, as for run, whose model makes LR and pairwise.")
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY=VALUE for that model, such as model.name=m. Repeat for several keys.",
            autocompletion=complete_setting,
        ),
    ] = None,
    relevant_from: Annotated[
        int, typer.Option(min=1, help="The grade from which R, P, MAP and MRR count a document as relevant.")
    ] = 1,
    skip_own: SkipOwn = False,
    condensed: Annotated[bool, typer.Option("--condensed", help="Leave out documents without a judgment.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a run that is judged by the grades that selected its documents.")
    ] = False,
    sort: Sort = None,
    baseline: Baseline = None,
    only_table: OnlyTable = False,
    pairs: Pairs = False,
    by_topic: ByTopic = False,
    bounds: Annotated[
        bool, typer.Option("--bounds", help="Add means with unjudged documents as relevant, and RBP's residual.")
    ] = False,
    skip_bad: SkipBad = False,
    topics: Annotated[
        str | None, typer.Option(help="Measure these topics only: a file of ids, or ids with commas between them.")
    ] = None,
    depth: Annotated[int, typer.Option(min=0, help="Cut each topic to this many rows, as trec_eval -M; 0: all.")] = 0,
    resample_judges: Annotated[
        bool,
        typer.Option(
            "--resample-judges", help="Add intervals over topics and judges, for judgments of keystone judge."
        ),
    ] = False,
    format: Format = "text",
    out: JsonFile = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure runs, or answers, and compare them by paired tests.

    Example: keystone evaluate out/a/narrative.trec out/b/narrative.trec --qrels qrels.txt -m nDCG@20 -m R@100

    Example: keystone evaluate out/a out/b --answers --references references.jsonl
    """
    from keystone.runs.evaluation.batch import Cut
    from keystone.runs.evaluation.bounds import treat_otherwise
    from keystone.runs.evaluation.evaluate import evaluate_files
    from keystone.runs.evaluation.judging.redraw import find_judge_intervals
    from keystone.runs.report.judging import format_judge_intervals
    from keystone.runs.report.tables import TABLES
    from keystone.runs.report.terminal import print_cautions, print_differences, print_evaluations, progress_bars

    asked = Asked(sort, baseline, only_table, pairs, by_topic, bounds, skip_bad, topics, depth)
    runs, qrels = runs if answers else list_files(runs), qrels or None
    if answers and asked != Asked():
        raise UserError("expected --sort, --baseline, --pairs and the like for runs only, not with --answers")
    if (qrels is None) != answers or (references is not None and not answers):
        hint = (
            "; trec_eval's QRELS RUN is RUN --qrels QRELS here, and its -q is --out FILE"
            if qrels is None and len(runs) > 1
            else ""
        )
        raise UserError(f"expected --qrels with judgments of runs, or --answers, with or without --references{hint}")
    if (skip_own or condensed or strict or resample_judges or relevant_from > 1) if answers else (config or set):
        of_runs = "--relevant-from, --skip-own, --condensed, --strict and --resample-judges"
        of_answers = "--config and --set"
        raise UserError(f"expected {of_runs} for runs only, {of_answers} for answers only")
    wanted: Sequence[Measure] = [] if answers else _parse_measures(measure, relevant_from, len(runs) > 1)
    settings = read_model_settings(config, set) if answers else None
    if settings is not None:
        check_run_outputs(settings, [*runs, references, name_config(config)], {"--out": out})
    else:
        assert qrels is not None
        check_outputs([*runs, *qrels, find_topics_file(topics or "")], {"--out": out})
        if asked != Asked() or len(qrels) > 1 or len(runs) > MOST_COMPARED:
            if resample_judges:
                raise UserError(f"expected --resample-judges with one judge and up to {MOST_COMPARED} runs, unsorted")
            ids = read_topic_ids(topics) if topics else frozenset[str]()
            with progress_bars(quiet) as progress:
                board = make_board(runs, qrels, wanted, Cut(skip_own, condensed, ids, depth), asked, progress)
            _refuse_circular([one for own in board.evaluations for one in own], strict)
            if not say_as_json("evaluate", runs, board.report, format, json):
                print_board(board, format, asked, quiet)
            write_json(board.report, out)
            return
    comparisons: list[Comparison] = []
    judged: list[NoisyMeans] = []
    with progress_bars(quiet) as progress, progress("Measuring", None):
        if settings is not None:
            evaluations, comparisons = _evaluate_answers(runs, references, measure or [], settings)
        elif qrels:
            add = treat_otherwise if len(runs) > 1 else None
            evaluations = evaluate_files(runs, qrels[0], wanted, skip_own, condensed, add)
            judged = find_judge_intervals(runs, qrels[0], wanted, skip_own, condensed) if resample_judges else []
    _refuse_circular(evaluations, strict)
    is_json = json or format == "json"
    report = _build_report(evaluations, comparisons if answers else None, judged) if is_json or out else {}
    if not say_as_json("evaluate", runs, report, format, json):
        if format == "text":
            print_evaluations(evaluations, compare=False)
            if len(evaluations) > 1:
                print_differences(evaluations)
        else:
            say(TABLES[format](evaluations))
        for comparison in comparisons:
            say(str(comparison), err=format != "text")
        if judged:
            say(format_judge_intervals(judged), err=format != "text")
    print_cautions(evaluations, quiet)
    write_json(report, out)


def _refuse_circular(evaluations: "Sequence[Evaluation]", strict: bool) -> None:
    if strict and (circular := next((one for one in evaluations if one.circular_rows), None)):
        raise UserError(f"--strict: {circular.cautions[-1]}; expected judgments by others")


def _build_report(
    evaluations: "list[Evaluation]", comparisons: "list[Comparison] | None", judged: "list[NoisyMeans]"
) -> dict[str, Any]:
    """Build the JSON of all numbers; `comparisons` are those of answers, None for runs."""
    from keystone.runs.evaluation.answers.evaluate_answers import report_comparison
    from keystone.runs.evaluation.compare import build_report

    report = build_report(evaluations)
    if comparisons is not None:
        report["comparisons"] = list(map(report_comparison, comparisons))
    if judged:
        report["judge_intervals"] = list(map(asdict, judged))
    return report


def _parse_measures(names: list[str] | None, relevant_from: int, compared: bool) -> "Sequence[Measure]":
    """Parse the names of measures. If runs are compared, the share of judged documents is one of them."""
    from keystone.runs.evaluation import measures

    wanted = measures.parse_measures(names) if names else measures.DEFAULT_MEASURES
    wanted = measures.add_judged_share(wanted) if compared else wanted
    return measures.set_relevant_grade(wanted, relevant_from)


def _evaluate_answers(
    files: list[Path], references: Path | None, names: list[str], settings: "RunConfig"
) -> "tuple[list[Evaluation], list[Comparison]]":
    from keystone.runs.evaluation.answers.evaluate_answers import evaluate_answer_files
    from keystone.runs.evaluation.answers.grounded import evaluate_grounded
    from keystone.runs.pipeline.model_runner import open_model_runner

    if references is not None and references.suffix == ".csv":
        return evaluate_grounded(files, references), []
    with open_model_runner(settings, None) as run_with_model:
        return evaluate_answer_files(files, references, names, run_with_model)


REPORTED_WARNINGS = 20
"""The number of warnings that are printed; `sheet.json` has all of them."""


def score(
    answers: Annotated[
        list[Path], typer.Argument(metavar="ANSWERS...", help="Run directories, or answer files of any track.")
    ],
    out: Annotated[Path, typer.Option(help="The folder for the sheet, and for what the judge says of each answer.")],
    track: Annotated[str, typer.Option(help="The track whose rules the files are checked by.")] = "rag26",
    topics: Annotated[
        Path | None,
        typer.Option(
            help="The narratives, in any form (see the page on corpora).",
            show_default="those of the runs, or of the answers",
        ),
    ] = None,
    nuggets: Annotated[Path | None, typer.Option(help="Nuggets, in any form (see the page on judging).")] = None,
    rubrics: Annotated[Path | None, typer.Option(help="Rubrics, as rows of ResearchRubrics or of RAGDoll.")] = None,
    qrels: Annotated[Path | None, typer.Option(help="Judgments, for the rankings of run directories.")] = None,
    judge: Annotated[
        Path | None, typer.Option(help="A YAML file, as for run, whose model judges and whose index has cited texts.")
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="Judge rubrics and battles by shared words, without a model.")
    ] = False,
    set: Overrides = None,
    budget: BudgetLimits = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the most calls, tokens and cost. Write nothing and ask no model.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score answers of several runs by all that a track measures, as one table with a row for each run.

    A part that cannot be made is left out, and a line says why.

    Example: keystone score out/a out/b other.jsonl --nuggets nuggets.jsonl --judge model.yaml --out sheet
    """
    from keystone.runs.evaluation import sheet as sheets
    from keystone.runs.report.leaderboard import describe_sheet, list_rows, print_rows, write_sheet
    from keystone.runs.track_rules import TRACKS

    if track not in TRACKS:
        raise UserError(f"--track {track}: unknown; expected one of {', '.join(TRACKS)}")
    settings = _read_judge(judge, rules, set, budget)
    check_run_outputs(settings, [*answers, topics, nuggets, rubrics, qrels, name_config(judge)], {"--out": out})
    asked = sheets.Asked(answers, TRACKS[track], topics, nuggets, rubrics, qrels, settings, rules)
    given = sheets.read_given(asked)
    if dry_run:
        _tell_foreseen(asked, given, json)
        return
    with open_runner(settings, "Judging", quiet, out) if settings else nullcontext() as run_with_model:
        sheet = sheets.make_sheet(asked, given, run_with_model, out)
    write_sheet(out, sheet)
    say_warnings(sheet.cautions, REPORTED_WARNINGS)
    for part, reason in sheet.left_out.items():
        say(f"left out: {part}: {reason}", err=True)
    if json:
        say_result("score", answers, {"out": out, **describe_sheet(sheet)})
        return
    print_rows(list_rows(sheet.rows), "text")
    say(out)


def _read_judge(
    judge: Path | None, rules: bool, overrides: list[str] | None, budget: list[str] | None
) -> "RunConfig | None":
    """Read the configuration of the judge; None if no model is to judge."""
    from keystone.runs.config.run_config import MISSING_MODEL

    if judge is None and not overrides:
        if budget:
            raise UserError("--budget: found no model, expected --judge with the YAML file of one")
        return None
    if rules:
        raise UserError("--rules: found a model too, expected either --rules or --judge and --set")
    source = str(judge or "--set")
    settings = read_with_budget(lambda own: read_model_settings(judge, [*own]), overrides or [], budget, source)
    settings.require_model(f"{source}: {MISSING_MODEL}")
    return settings


def _tell_foreseen(asked: "sheets.Asked", given: "sheets.Given", json: bool) -> None:
    from keystone.runs.evaluation.sheet import foresee_sheet
    from keystone.runs.report.foresight import format_budget, format_calls, join_calls, list_calls

    model = asked.judge.model if asked.judge else None
    found, left_out = foresee_sheet(asked, given)
    calls, prices = join_calls(found), model.prices if model else None
    if json:
        foreseen = list_calls(calls, prices)
        say_result("score", asked.answers, {**foreseen, "left_out": left_out})
        return
    say(f"{plural(len(asked.answers), 'run')}; nothing is written, no model is asked")
    for part, reason in left_out.items():
        say(f"left out: {part}: {reason}", err=True)
    if not calls:
        say("the sheet needs no language model")
        return
    for line in format_calls(calls, prices, "without repairs, with four characters a token"):
        say(line)
    if model and model.budget:
        say(format_budget(model.budget))
