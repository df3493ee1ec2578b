"""The command `keystone score`: everything that a track would measure of several runs, in one table."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.options import BudgetLimits, Json, Overrides, Quiet, read_with_budget
from keystone.runs.report.say import say, say_result, say_warnings
from keystone.runs.wording import plural

if TYPE_CHECKING:
    from keystone.runs.config.run_config import RunConfig
    from keystone.runs.evaluation.sheet.make import Asked, Given

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
        bool, typer.Option("--dry-run", help="Print calls, tokens and cost at most. Write nothing and ask no model.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score answers of several runs by all that a track measures, as one table with a row for each run.

    A part that cannot be made is left out, and a line says why.

    Example: keystone score out/a out/b other.jsonl --nuggets nuggets.jsonl --judge model.yaml --out sheet
    """
    from keystone.runs.cli.model import open_runner
    from keystone.runs.cli.outputs import check_run_outputs
    from keystone.runs.evaluation.sheet.make import Asked, make_sheet, read_given
    from keystone.runs.report.leaderboard import print_rows
    from keystone.runs.report.sheet import describe_sheet, list_rows, write_sheet
    from keystone.runs.track_rules import TRACKS

    if track not in TRACKS:
        raise UserError(f"--track {track}: unknown; expected one of {', '.join(TRACKS)}")
    settings = _read_judge(judge, rules, set, budget)
    check_run_outputs(settings, [*answers, topics, nuggets, rubrics, qrels, judge], {"--out": out})
    asked = Asked(answers, TRACKS[track], topics, nuggets, rubrics, qrels, settings, rules)
    given = read_given(asked)
    if dry_run:
        _tell_foreseen(asked, given, json)
        return
    with open_runner(settings, "Judging", quiet, out) if settings else nullcontext() as run_with_model:
        sheet = make_sheet(asked, given, run_with_model, out)
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
    from keystone.runs.cli.model import read_model_settings
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


def _tell_foreseen(asked: "Asked", given: "Given", json: bool) -> None:
    from keystone.runs.evaluation.sheet.make import foresee_sheet
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
