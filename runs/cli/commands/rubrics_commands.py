"""The commands `keystone rubrics create`, `assign`, `score` and `convert`."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.commands.nuggets_commands import (
    Answers,
    Config,
    ModelConfig,
    Out,
    Qrels,
    RelevantFrom,
)
from keystone.runs.cli.leaderboard import Asked, list_files, list_scored, show_scores
from keystone.runs.cli.options import (
    Baseline,
    ByTopic,
    Command,
    Format,
    Json,
    JsonFile,
    OnlyTable,
    Overrides,
    Pairs,
    Quiet,
    SkipBad,
    Sort,
    check_outputs,
    check_run_outputs,
    name_config,
    open_runner,
    read_model_settings,
)
from keystone.runs.report.say import say_output

Rubrics = Annotated[Path, typer.Option(help="Rubrics, as rows of ResearchRubrics or of RAGDoll.")]

RubricForm = Literal["ragdoll", "researchrubrics"]
"""The forms of files of rubrics; `keystone.runs.evaluation.rubrics.FORMS` has them all."""

rubrics = typer.Typer(
    name="rubrics", help="Create weighted rubrics, grade answers by them, and score answers as the track does."
)


@rubrics.command(cls=Command)
def create(
    config: Config,
    qrels: Qrels,
    out: Out,
    set: Overrides = None,
    relevant_from: RelevantFrom = 2,
    to: Annotated[RubricForm, typer.Option(help="The form of the file.")] = "ragdoll",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Create a weighted rubric of each topic from its relevant documents, by the model of a run.

    Example: keystone rubrics create model.yaml --qrels qrels.txt --out rubrics.jsonl
    """
    from keystone.runs.config.read import read_config
    from keystone.runs.evaluation.rubrics import create_rubrics, keep_criteria, write_rubrics

    settings = read_config(config, set)
    check_run_outputs(settings, [name_config(config), qrels], {"--out": out})
    with open_runner(settings, "Creating rubrics", quiet) as run_with_model:
        made, cautions = create_rubrics(settings, qrels, relevant_from, run_with_model)
    if not made:
        raise UserError(f"{config}: the model gave no usable criterion: {cautions[-1]}")
    keep_criteria(out, made, to)
    write_rubrics(out, made, to)
    say_output("rubrics create", config, out, json, cautions)


@rubrics.command(cls=Command)
def assign(
    files: Answers,
    rubrics: Rubrics,
    out: Out,
    config: ModelConfig = None,
    rules: Annotated[bool, typer.Option("--rules", help="Grade by shared words, without a model.")] = False,
    set: Overrides = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Grade answers by each criterion: satisfied, partially_satisfied or not_satisfied.

    Example: keystone rubrics assign out/my-run --rubrics rubrics.jsonl --config model.yaml --out graded.jsonl
    """
    from keystone.runs.evaluation.rubrics import assign_rubrics, read_rubrics, write_rubrics
    from keystone.runs.evaluation.scored_answers import CRITERIA, keep_labels

    if rules and (config is not None or set):
        raise UserError("--rules: found a model too, expected either --rules or --config and --set")
    settings = None if rules else read_model_settings(config, set)
    check_run_outputs(settings, [*files, rubrics, name_config(config)], {"--out": out})
    with open_runner(settings, "Grading answers", quiet) if settings else nullcontext() as run_with_model:
        graded, cautions = assign_rubrics(files, read_rubrics(rubrics), str(rubrics), run_with_model)
    keep_labels(out, graded, CRITERIA)
    write_rubrics(out, graded)
    say_output("rubrics assign", files, out, json, cautions)


@rubrics.command(cls=Command)
def score(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Files of rubrics assign, or folders of them."),
    ] = None,
    rubrics: Annotated[
        list[Path] | None,
        typer.Option(
            help="Score the topics of these rubrics. Repeat for several judges, which are compared; a file of graded "
            "rubrics is a judge by itself."
        ),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write cell_scores.csv, run_scores.csv and category_failures.csv here."),
    ] = None,
    sort: Sort = None,
    baseline: Baseline = None,
    only_table: OnlyTable = False,
    pairs: Pairs = False,
    by_topic: ByTopic = False,
    skip_bad: SkipBad = False,
    format: Format = "text",
    out: JsonFile = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score graded answers: each narrative, the mean, and differences of runs. A missing answer counts 0.

    Example: keystone rubrics score graded.jsonl --rubrics rubrics.jsonl --tables scores
    """
    from keystone.runs.evaluation.rubrics import write_tables
    from keystone.runs.evaluation.scored_answers import find_kind, judge_answers, read_scored

    judges = rubrics or []
    if not files and (len(judges) < 2 or tables is not None):
        raise UserError("expected files of graded rubrics, or --rubrics with those of several judges and no --tables")
    check_outputs([*(files or []), *judges], {"--out": out, "--tables": tables})
    scored = list_scored(files or [], skip_bad)
    judged = judge_answers(scored, {path: list_files([path]) for path in judges})
    asked = Asked(sort, baseline, only_table, pairs, by_topic)
    show_scores("rubrics score", files or judges, judged, asked, format, out=out, json=json, quiet=quiet)
    if tables is not None:
        write_tables(tables, read_scored(scored, find_kind(scored))[0], judged.evaluations[0])


@rubrics.command(cls=Command)
def convert(
    file: Annotated[Path, typer.Argument(help="Rubrics, as rows of ResearchRubrics or of RAGDoll.")],
    to: Annotated[RubricForm, typer.Option(help="The form to write.")],
    out: Out,
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Write rubrics in the form of another tool.

    Example: keystone rubrics convert rubrics.jsonl --to ragdoll --out ragdoll.jsonl
    """
    from keystone.runs.evaluation.rubrics import read_rubrics, write_rubrics

    check_outputs([file], {"--out": out})
    write_rubrics(out, read_rubrics(file), to)
    say_output("rubrics convert", file, out, json)
