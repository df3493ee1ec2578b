"""The commands `keystone tune` and `keystone sweep`, which try settings on judged topics."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.options import CORES, Json, Overrides, Quiet, SkipOwn, Threads, check_run_outputs, name_config
from keystone.runs.report.say import say_result

RANKING_MEASURES = ("nDCG@10", "R@100")
"""The measures of rankings unless the user names others. The first one chooses the settings."""
QRELS = typer.Option(help="Judgments of its topics, in any form (see the page on corpora).")
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "--measure",
        "-m",
        help="Measures to print. The first one chooses the settings. Repeat for several.",
        show_default="nDCG@10, R@100",
    ),
]
Folds = Annotated[int, typer.Option(min=2, help="The number of parts of the topics for cross-validation.")]


def tune(
    config: Annotated[Path, typer.Argument(help="The YAML file of the run to tune.")],
    qrels: Annotated[Path, QRELS],
    attempt: Annotated[
        list[str] | None,
        typer.Option("--try", help="KEY=[VALUE, ...] to try. Repeat for several keys.", show_default="a grid"),
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="Choose the weights of the systems, by coordinate ascent.")
    ] = False,
    set: Overrides = None,
    measure: Measures = None,
    folds: Folds = 5,
    calibrate: Annotated[
        Path | None,
        typer.Option(help="Fit no settings but the calibration of fusion.depth, and write it into this file."),
    ] = None,
    relevant_from: Annotated[int, typer.Option(min=1, help="The lowest relevant grade, for --calibrate.")] = 1,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the reliability of --calibrate into this file, as SVG or PNG.")
    ] = None,
    skip_own: SkipOwn = False,
    json: Json = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Choose settings by cross-validation over judged topics.

    Unless others are better, the run's own settings are recommended.

    Example: keystone tune run.yaml --qrels qrels.txt --try 'fusion.k_narrative=[10, 60]'
    """
    from keystone.indexing.io.writing import write_json_lines
    from keystone.runs.cli.commands.report_command import check_picture
    from keystone.runs.config.read import read_config
    from keystone.runs.evaluation.depth import calibrate_run
    from keystone.runs.evaluation.measures import add_judged_share, parse_measures
    from keystone.runs.evaluation.tune import Trials, describe_tuning
    from keystone.runs.evaluation.tune import tune as tuned
    from keystone.runs.evaluation.weights import tune_weights
    from keystone.runs.report.terminal import print_cautions, print_reliability, print_tuning, progress_bars

    outputs = {"--calibrate": calibrate, "--plot": plot}
    check_run_outputs(read_config(config, set), [name_config(config), qrels], outputs)
    if plot is not None:
        if calibrate is None:
            raise UserError("--plot: found without --calibrate, expected it with that option")
        check_picture(plot)
    if calibrate is not None:
        if attempt or measure or weights:
            raise UserError("--calibrate: found with --try, --weights or --measure, expected it without them")
        with progress_bars(quiet) as progress:
            fitted = calibrate_run(config, set or [], qrels, relevant_from, folds, skip_own, threads, progress)
        write_json_lines(calibrate, [fitted])
        if plot is not None:
            from keystone.runs.report.plots import draw_reliability, write_figure

            write_figure(draw_reliability(fitted["held_out"]["reliability"]), plot)
        if json:
            say_result("tune", config, fitted)
        else:
            print_reliability(fitted["held_out"])
        return
    if weights and attempt:
        raise UserError("--weights: found with --try, expected it without")
    measures = add_judged_share(parse_measures(measure or RANKING_MEASURES))
    with progress_bars(quiet) as progress:
        trials = Trials(qrels, measures, attempt, folds, skip_own)
        found = (tune_weights if weights else tuned)(config, set or [], trials, threads, progress)
    if json:
        say_result("tune", config, describe_tuning(found))
    else:
        print_tuning(found)
    print_cautions(found.compared, quiet)


def sweep(
    config: Annotated[Path, typer.Argument(help="The YAML file of the run.")],
    attempt: Annotated[
        list[str], typer.Option("--try", help="KEY=[VALUE, ...] to try. Repeat for several keys: all combinations.")
    ],
    qrels: Annotated[Path | None, QRELS] = None,
    references: Annotated[
        Path | None,
        typer.Option(help="References of answers: a JSON object a topic, whose fields choose the default measures."),
    ] = None,
    set: Overrides = None,
    measure: Measures = None,
    folds: Folds = 5,
    skip_own: SkipOwn = False,
    json: Json = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Make a whole run for each combination of settings, and compare measures and costs.

    Stages that several runs share are made once.

    The runs are in OUT/RUN_ID.sweep. Unless other settings are better by cross-validation, the run's own are
    recommended.

    Example: keystone sweep run.yaml --qrels qrels.txt --try 'fusion.k_narrative=[10, 60]' --try 'retrieval.b=[0.4, 1]'
    """
    from keystone.runs.config.read import read_config
    from keystone.runs.evaluation.measures import add_judged_share, parse_measures
    from keystone.runs.evaluation.sweep import measure_answers, measure_rankings
    from keystone.runs.evaluation.sweep import sweep as swept
    from keystone.runs.evaluation.tune import describe_tuning
    from keystone.runs.report.terminal import print_cautions, print_sweep, progress_bars

    settings = read_config(config, set)
    outputs: dict[str, Path | None] = {"the folder of the sweep": settings.out / f"{settings.run_id}.sweep"}
    check_run_outputs(settings, [name_config(config), qrels, references], outputs)
    if qrels is not None and references is None:
        measures = add_judged_share(parse_measures(measure or RANKING_MEASURES))
        take_measures = measure_rankings(qrels, measures, skip_own)
    elif references is not None and qrels is None and not skip_own:
        take_measures = measure_answers(references, measure or [])
    else:
        raise UserError("expected either --qrels, with or without --skip-own, or --references")
    with progress_bars(quiet) as progress:
        found = swept(config, set or [], attempt, take_measures, folds, threads, progress)
    if json:
        runs = [{"settings": setting, **asdict(point)} for setting, point in found.points.items()]
        say_result("sweep", config, {**describe_tuning(found.tuning), "runs": runs})
    else:
        print_sweep(found)
    print_cautions(found.tuning.compared, quiet)
