"""The commands `keystone report`, `diagnose` and `plot`, for run directories."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.leaderboard import MOST_COMPARED, list_files, write_leaderboard
from keystone.runs.cli.options import (
    JUDGMENTS,
    WANTED,
    Json,
    Quiet,
    RelevantFrom,
    SkipBad,
    check_outputs,
    read_measure,
)
from keystone.runs.pipeline.file_names import CONFIG
from keystone.runs.report.say import say, say_output, say_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keystone.indexing.types import Store
    from keystone.runs.evaluation.diagnosis.wanted import Wanted

PICTURE_FORMATS = (".svg", ".png")
JSON_FORMAT = ".json"
Cost = Literal["calls", "tokens", "seconds"]
"""The costs of a run, which are fields of `keystone.runs.evaluation.sweep.Cost`."""


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Run directories, finished or not, or answer files of any track. The report compares the others with "
            "the first one. Run files, folders of them, scored answers, and more than eight run directories become a "
            "leaderboard with hard topics.",
        ),
    ],
    qrels: Annotated[Path | None, JUDGMENTS] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", "-m", help="A measure of a leaderboard; the first ranks runs. Repeat for several."),
    ] = None,
    topics: Annotated[
        Path | None,
        typer.Option(help="Topics, whose narratives a leaderboard shows, in any form (see the page on corpora)."),
    ] = None,
    skip_bad: SkipBad = False,
    battles: Annotated[
        Path | None, typer.Option(help="The folder of an arena, or its judgments.jsonl, for a leaderboard of battles.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show runs in one HTML file: costs, measures, and each narrative up to its cited answer.

    Example: keystone report out/first out/second --qrels qrels.txt --out report.html
    """
    from keystone.runs.report.html.write import write_report
    from keystone.runs.report.terminal import progress_bars

    check_outputs([*runs, qrels, battles, topics], {"--out": out})
    if _become_leaderboard(runs, qrels):
        if battles is not None:
            raise UserError("--battles: expected with up to eight run directories, or answer files")
        with progress_bars(quiet) as progress:
            write_leaderboard(runs, qrels, measure, topics, out, skip_bad=skip_bad, progress=progress)
        say_output("report", runs, out, json)
        return
    if measure or topics or skip_bad:
        raise UserError("expected --measure, --topics and --skip-bad with run files, scored answers, or many runs")
    board = None
    if battles is not None:
        from keystone.runs.evaluation.arena.play import read_arena
        from keystone.runs.evaluation.arena.tournament import make_leaderboard

        arena = read_arena(battles)
        board = make_leaderboard(arena.judgments, arena.run_ids, arena.judge)
    with progress_bars(quiet) as progress, progress("Writing the report", None):
        write_report(runs, out, qrels, board=board)
    say_output("report", runs, out, json)


def _become_leaderboard(paths: "Sequence[Path]", qrels: Path | None) -> bool:
    """Whether the report of these paths is a leaderboard, rather than one that follows each topic to its answer."""
    from keystone.runs.evaluation.scored_answers import holds_answers, holds_scored_answers

    directories = [path for path in paths if (path / CONFIG).exists()]
    if len(directories) == len(paths):
        return qrels is not None and len(paths) > MOST_COMPARED
    others = [path for path in paths if path not in directories and path.exists()]
    files = [path for path in others if path.is_file()]
    inside = [file for path in others if path.is_dir() for file in path.iterdir() if file.is_file()]
    if any(map(holds_scored_answers, [*files, *inside])):
        return True
    return not all(map(holds_answers, files)) or (qrels is not None and bool(inside))


def diagnose(
    directory: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of a finished run.")],
    qrels: Annotated[Path | None, JUDGMENTS] = None,
    nuggets: Annotated[Path | None, WANTED] = None,
    relevant_from: RelevantFrom = 1,
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", "-m", help="With --qrels, also show the losses in this measure, such as nDCG@10."),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Draw the losses in this picture (.svg, .png), or write each nugget or document with its loss "
            "(.json). Repeat for both.",
        ),
    ] = None,
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Find the stage at which a run lost each relevant document or nugget, and what each loss costs.

    Example: keystone diagnose out/my-run --nuggets nuggets.jsonl --out losses.svg
    """
    import orjson

    from keystone.indexing.io.writing import write_whole
    from keystone.runs.evaluation.diagnosis.diagnose import diagnose as diagnosed
    from keystone.runs.evaluation.diagnosis.diagnose import measure_worth
    from keystone.runs.evaluation.diagnosis.wanted import list_nuggets, read_relevant_documents
    from keystone.runs.evaluation.nuggets.files import read_nuggets
    from keystone.runs.report.diagnosis import describe_diagnosis, print_diagnosis
    from keystone.runs.report.plots import draw_losses, write_figure

    if (qrels is None) == (nuggets is None):
        raise UserError("expected either --qrels with judgments or --nuggets with nuggets")
    if measure is not None and qrels is None:
        raise UserError("--measure: expected with --qrels, since nuggets do not judge rankings")
    wanted = read_measure(measure) if measure else None
    for path in out or []:
        check_picture(path, JSON_FORMAT)
        check_outputs([directory, qrels, nuggets], {"--out": path})

    def read_wanted(store: "Store") -> "list[Wanted]":
        if nuggets is not None:
            return list_nuggets(read_nuggets(nuggets))
        assert qrels is not None
        return read_relevant_documents(qrels, relevant_from, store)

    found = diagnosed(directory, read_wanted)
    worth = measure_worth(directory, found, wanted) if wanted else None
    if json:
        say_result("diagnose", directory, describe_diagnosis(found, worth))
    else:
        print_diagnosis(found, worth)
    for path in out or []:
        if path.suffix == JSON_FORMAT:
            with write_whole(path) as file:
                file.write(orjson.dumps(describe_diagnosis(found, worth), option=orjson.OPT_INDENT_2))
            continue
        write_figure(draw_losses(found), path)
        say(path, err=json)


def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Run files, folders of them, or run directories, whose last ranking counts; with --setting or --cost, "
            "run directories. The others are compared with the first one. More than eight are ranked.",
        ),
    ],
    qrels: Annotated[Path, typer.Option(help="Judgments, in any form (see the page on corpora).")],
    out: Annotated[Path, typer.Option(help="The picture to write: .svg or .png.")],
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            "-m",
            help="A measure of the bars. The differences of topics are those of the first. Repeat for several.",
            show_default="nDCG@10, R@100, MAP, MRR",
        ),
    ] = None,
    setting: Annotated[
        str | None, typer.Option(help="Draw the first measure against the values of this key of the configuration.")
    ] = None,
    cost: Annotated[Cost | None, typer.Option(help="Draw the first measure against this cost of the model.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw measures with 95 % intervals, differences of topics, and recall against depth; or rank many runs.

    Example: keystone plot out/a/narrative.trec out/b/narrative.trec --qrels qrels.txt --out runs.svg

    Example: keystone plot out/r.sweep/*/r --qrels qrels.txt --setting fusion.k_narrative --out sweep.svg
    """
    from keystone.runs.evaluation.batch import evaluate_batch, name_by_tags
    from keystone.runs.evaluation.evaluate import evaluate_files
    from keystone.runs.evaluation.leaderboard import rank_all
    from keystone.runs.evaluation.measures import parse_measures
    from keystone.runs.report.plots import RECALL_DEPTHS, draw_runs, draw_standings, write_figure
    from keystone.runs.report.terminal import print_cautions, progress_bars

    check_picture(out)
    check_outputs([*runs, qrels], {"--out": out})
    bars = parse_measures(measure or ("nDCG@10", "R@100", "MAP", "MRR"))
    depths = parse_measures(f"R@{depth}" for depth in RECALL_DEPTHS)
    if setting is not None or cost is not None:
        from keystone.runs.report.plots import plot_costs, plot_setting

        if setting is not None and cost is not None:
            raise UserError("expected either --setting or --cost")
        if setting is not None:
            figure = plot_setting(runs, qrels, bars[0], setting)
        elif cost is not None:
            figure = plot_costs(runs, qrels, bars[0], cost)
        write_figure(figure, out)
        say_output("plot", runs, out, json)
        return
    files = list_files(runs)
    with progress_bars(quiet) as progress, progress("Measuring", None):
        if len(files) > MOST_COMPARED:
            batch = name_by_tags(evaluate_batch(files, [qrels], bars[:1]))
            evaluations = batch.evaluations[0]
            figure = draw_standings(rank_all(evaluations, str(bars[0])))
        else:
            evaluations = evaluate_files(files, qrels, list(dict.fromkeys([*bars, *depths])))
            figure = draw_runs(evaluations, list(dict.fromkeys(map(str, bars))))
    write_figure(figure, out)
    print_cautions(evaluations, quiet)
    say_output("plot", runs, out, json)


def check_picture(out: Path, *others: str) -> None:
    """Raise `UserError` if the name of a picture does not end with one of `PICTURE_FORMATS`, or of `others`."""
    if out.suffix not in (known := (*PICTURE_FORMATS, *others)):
        raise UserError(f"--out {out}: expected a name that ends with {' or '.join(known)}")
