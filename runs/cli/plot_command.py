"""The command `keystone plot`."""

from pathlib import Path
from typing import Annotated

import typer

from indexing.errors import UserError
from runs.cli.options import Quiet
from runs.report.say import say

FORMATS = (".svg", ".png")


def plot(
    runs: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Run files. The others are compared with the first one.")
    ],
    qrels: Annotated[Path, typer.Option(help="Judgments in TREC form.")],
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
    quiet: Quiet = False,
) -> None:
    """Draw the measures of runs with 95 % intervals, the differences of topics, and recall against depth.

    Example: keystone plot out/a/narrative.trec out/b/narrative.trec --qrels qrels.txt --out runs.svg
    """
    from runs.cli.outputs import check_outputs
    from runs.evaluation.evaluate import evaluate_files
    from runs.evaluation.measures import parse_measure
    from runs.report.plots import RECALL_DEPTHS, draw_runs, write_figure
    from runs.report.terminal import print_cautions, progress_bars

    check_picture(out)
    check_outputs([*runs, qrels], {"--out": out})
    bars = [parse_measure(name) for name in measure or ("nDCG@10", "R@100", "MAP", "MRR")]
    depths = [parse_measure(f"R@{depth}") for depth in RECALL_DEPTHS]
    with progress_bars(quiet) as progress, progress("Measuring", None):
        evaluations = evaluate_files(runs, qrels, list(dict.fromkeys([*bars, *depths])))
    write_figure(draw_runs(evaluations, list(dict.fromkeys(map(str, bars)))), out)
    print_cautions(evaluations, quiet)
    say(out)


def check_picture(out: Path) -> None:
    """Raise `UserError` if the name of a picture does not end with one of `FORMATS`."""
    if out.suffix not in FORMATS:
        raise UserError(f"--out {out}: expected a name that ends with {' or '.join(FORMATS)}")
