"""The commands `keystone evaluate` and `tune`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runs.cli.options import CORES, Quiet, Threads

if TYPE_CHECKING:
    pass


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run files. The command compares the others with the first one.")],
    qrels: Annotated[Path, typer.Option(help="Judgments in TREC form.")],
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            "-m",
            help="A measure, such as nDCG@20, R@100, P@10, MAP, MRR or judged@10. Repeat for several.",
        ),
    ] = None,
    relevant_from: Annotated[
        int, typer.Option(min=1, help="The grade from which R, P, MAP and MRR count a document as relevant.")
    ] = 1,
    skip_own: Annotated[
        bool, typer.Option(help="Leave out each topic's document with the same id, as BEIR does.")
    ] = False,
    json: Annotated[
        Path | None, typer.Option(help="Write means, values of each topic and p-values to this file.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure runs with ranx, and compare them by a paired t-test.

    Example: keystone evaluate out/a/narrative.trec out/b/narrative.trec --qrels qrels.txt -m nDCG@20 -m R@100
    """
    import orjson

    from indexing.io.writing import write_whole
    from runs.cli.outputs import check_outputs
    from runs.evaluation import measures
    from runs.report.terminal import print_cautions, print_evaluations, progress_bars

    check_outputs([*runs, qrels], {"--json": json})
    wanted = tuple(map(measures.parse_measure, measure)) if measure else measures.DEFAULT_MEASURES
    wanted = measures.set_relevant_grade(wanted, relevant_from)

    from runs.evaluation.evaluate import build_report, evaluate_files

    with progress_bars(quiet) as progress, progress("Measuring", None):
        evaluations = evaluate_files(runs, qrels, wanted, skip_own)
    print_evaluations(evaluations)
    print_cautions(evaluations, quiet)
    if json:
        with write_whole(json) as file:
            file.write(orjson.dumps(build_report(evaluations), option=orjson.OPT_INDENT_2))


def tune(
    config: Annotated[Path, typer.Argument(help="The YAML file of the run to tune.")],
    qrels: Annotated[Path, typer.Option(help="Judgments of its topics in TREC form.")],
    attempt: Annotated[
        list[str] | None,
        typer.Option("--try", help="KEY=[VALUE, ...] to try. Repeat for several keys.", show_default="a grid"),
    ] = None,
    set: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE, which overrides the file. Repeat for several keys.")
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            "-m",
            help="Measures to print. The first one chooses the settings. Repeat for several.",
            show_default="nDCG@10, R@100",
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="The number of parts of the topics for cross-validation.")] = 5,
    skip_own: Annotated[
        bool, typer.Option(help="Leave out each topic's document with the same id, as BEIR does.")
    ] = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Find settings by cross-validation over judged topics. Unless others are better, the run's own are recommended.

    Example: keystone tune run.yaml --qrels qrels.txt --try 'fusion.k_narrative=[10, 60]'
    """
    from runs.cli.outputs import check_run_outputs
    from runs.config.read import read_config
    from runs.evaluation.measures import parse_measure
    from runs.evaluation.tune import Trials
    from runs.evaluation.tune import tune as tuned
    from runs.report.terminal import print_cautions, print_tuning, progress_bars

    check_run_outputs(read_config(config, set), [config, qrels], {})
    measures = [parse_measure(name) for name in measure or ("nDCG@10", "R@100")]
    with progress_bars(quiet) as progress:
        trials = Trials(qrels, measures, attempt, folds, skip_own)
        found = tuned(config, set or [], trials, threads, progress)
    print_tuning(found)
    print_cautions([found.configured], quiet)
