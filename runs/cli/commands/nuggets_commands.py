"""The commands `keystone nuggets create`, `assign`, `support`, `score` and `convert`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.leaderboard import Asked, list_files, list_scored, show_scores
from keystone.runs.cli.options import (
    JUDGMENTS,
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

Config = Annotated[Path, typer.Argument(help="The YAML file of a run, with its topics, its index and its model.")]
ModelConfig = Annotated[Path | None, typer.Option(help="A YAML file, as for run, whose model assigns the nuggets.")]
Answers = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="Answer files of any track, or run directories.")
]
Out = Annotated[Path, typer.Option(help="The JSONL file to write.")]
Qrels = Annotated[Path, JUDGMENTS]
RelevantFrom = Annotated[int, typer.Option(min=1, help="The grade from which the model sees a document or segment.")]

NuggetForm = Literal["nuggetizer", "nuggetbank", "ragtime"]
"""The forms of files of nuggets; `keystone.runs.evaluation.nuggets.files.FORMS` has them all."""

nuggets = typer.Typer(
    name="nuggets", help="Create nuggets, assign them to answers, and score answers as the track does."
)


@nuggets.command(cls=Command)
def create(
    config: Config,
    out: Out,
    qrels: Annotated[Path | None, JUDGMENTS] = None,
    set: Overrides = None,
    relevant_from: RelevantFrom = 2,
    to: Annotated[
        NuggetForm, typer.Option(help="The form of the file. nuggetbank keeps the documents that say each nugget.")
    ] = "nuggetizer",
    run: Annotated[
        Path | None,
        typer.Option(
            help="Without judgments: a run file or a run directory. Its first answer.documents documents count as "
            "relevant."
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Create the nuggets of each topic from its relevant documents, vital or okay, by the model of a run.

    Example: keystone nuggets create model.yaml --qrels qrels.txt --out nuggets.jsonl

    Example: keystone nuggets create model.yaml --run out/my-run --to ragtime --out nuggets.jsonl
    """
    from keystone.runs.config.read import read_config
    from keystone.runs.evaluation.nuggets.files import keep_nuggets, write_nuggets
    from keystone.runs.evaluation.nuggets.judge import create_banks, create_banks_from_run

    if (qrels is None) == (run is None):
        raise UserError("expected --qrels with judgments, or --run with the run whose documents give nuggets")
    settings = read_config(config, set)
    check_run_outputs(settings, [name_config(config), qrels, run], {"--out": out})
    with open_runner(settings, "Creating nuggets", quiet) as run_with_model:
        if run is not None:
            banks, cautions = create_banks_from_run(settings, run, run_with_model)
        else:
            assert qrels is not None
            banks, cautions = create_banks(settings, qrels, relevant_from, run_with_model)
    keep_nuggets(out, banks, to)
    write_nuggets(out, banks, to)
    say_output("nuggets create", config, out, json, cautions)


@nuggets.command(cls=Command)
def assign(
    files: Answers,
    nuggets: Annotated[Path, typer.Option(help="Nuggets, in any form (see the page on judging).")],
    out: Out,
    config: ModelConfig = None,
    set: Overrides = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Assign nuggets to answers by a model: support, partial_support or not_support.

    Example: keystone nuggets assign out/my-run --nuggets nuggets.jsonl --config model.yaml --out assigned.jsonl
    """
    from keystone.runs.evaluation.nuggets.files import read_nuggets, write_nuggets
    from keystone.runs.evaluation.nuggets.judge import assign_banks
    from keystone.runs.evaluation.scored_answers import NUGGETS, keep_labels

    settings = read_model_settings(config, set)
    check_run_outputs(settings, [*files, nuggets, name_config(config)], {"--out": out})
    with open_runner(settings, "Assigning nuggets", quiet) as run_with_model:
        banks, cautions = assign_banks(files, read_nuggets(nuggets), str(nuggets), run_with_model)
    keep_labels(out, banks, NUGGETS)
    write_nuggets(out, banks)
    say_output("nuggets assign", files, out, json, cautions)


@nuggets.command(cls=Command)
def support(
    files: Answers,
    config: Annotated[
        Path, typer.Option(help="The YAML file of a run, whose model rates and whose index has the texts.")
    ],
    out: Out,
    set: Overrides = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rate by a model how far each cited passage supports its sentence: full, partial or none.

    Example: keystone nuggets support out/my-run --config model.yaml --out support.jsonl
    """
    from keystone.runs.config.read import read_config
    from keystone.runs.evaluation.nuggets.cited import write_cited_answers
    from keystone.runs.evaluation.nuggets.judge import rate_files
    from keystone.runs.evaluation.scored_answers import CITATIONS, keep_labels

    settings = read_config(config, set)
    check_run_outputs(settings, [*files, name_config(config)], {"--out": out})
    with open_runner(settings, "Rating citations", quiet) as run_with_model:
        answers, cautions = rate_files(files, settings, run_with_model)
    keep_labels(out, answers, CITATIONS)
    write_cited_answers(out, answers)
    say_output("nuggets support", files, out, json, cautions)


@nuggets.command(cls=Command)
def score(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Files of nuggets assign, or of nuggets support, or folders of them."),
    ] = None,
    nuggets: Annotated[
        list[Path] | None,
        typer.Option(
            help="Score the topics of these nuggets, in any form (see the page on judging). Repeat for several "
            "judges, which are compared; a file of assigned nuggets is a judge by itself."
        ),
    ] = None,
    topics: Annotated[
        Path | None,
        typer.Option(help="Score these topics, in any form (see the page on corpora)."),
    ] = None,
    track: Annotated[
        str | None,
        typer.Option(help="Of each sentence, count no more citations than this track allows, such as rag26."),
    ] = None,
    agree_with: Annotated[
        Path | None, typer.Option(help="Compare the labels with those of this file or folder of another judge.")
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
    """Score answers from assigned nuggets or rated citations: each topic, the mean, and differences of runs.

    A topic without an answer counts 0. --nuggets or --topics name all topics; otherwise the files do.

    Example: keystone nuggets score assigned.jsonl --nuggets nuggets.jsonl
    """
    from keystone.runs.evaluation.scored_answers import compare_labels, judge_answers
    from keystone.runs.track_rules import TRACKS
    from keystone.runs.trec.topics import read_topics

    judges = nuggets or []
    if judges and topics is not None and len(judges) < 2:
        raise UserError("expected either --nuggets or --topics")
    if not files and len(judges) < 2:
        raise UserError("expected files of scored answers, or --nuggets with those of several judges")
    check_outputs([*(files or []), *judges, topics, agree_with], {"--out": out})
    if track is not None and track not in TRACKS:
        raise UserError(f"--track: found {track!r}, expected one of {', '.join(TRACKS)}")
    scored = list_scored(files or [], skip_bad)
    wanted = [topic.id for topic in read_topics(topics)] if topics else []
    files_of = {path: list_files([path]) for path in judges}
    judged = judge_answers(scored, files_of, wanted, TRACKS[track].cited if track else None)
    agreement = compare_labels(scored, list_files([agree_with])) if agree_with else None
    asked = Asked(sort, baseline, only_table, pairs, by_topic)
    show_scores("nuggets score", files or judges, judged, asked, format, agreement, out=out, json=json, quiet=quiet)


@nuggets.command(cls=Command)
def convert(
    file: Annotated[Path, typer.Argument(help="Nuggets, in any form (see the page on judging).")],
    to: Annotated[NuggetForm, typer.Option(help="The form to write.")],
    out: Out,
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Write nuggets in the form of another tool.

    Example: keystone nuggets convert nuggets.jsonl --to nuggetbank --out bank.jsonl
    """
    from keystone.runs.evaluation.nuggets.files import read_nuggets, write_nuggets

    check_outputs([file], {"--out": out})
    write_nuggets(out, read_nuggets(file), to)
    say_output("nuggets convert", file, out, json)
