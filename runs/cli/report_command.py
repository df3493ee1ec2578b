"""The command `keystone report`."""

from pathlib import Path
from typing import Annotated

import typer

from runs.cli.options import Quiet
from runs.report.say import say


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN_DIR...",
            help="Run directories, finished or not, or answer files of any track. The report compares the others with "
            "the first one.",
        ),
    ],
    qrels: Annotated[Path | None, typer.Option(help="Judgments in TREC form, of documents or segments.")] = None,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    quiet: Quiet = False,
) -> None:
    """Write one HTML file that shows runs in a browser: costs, measures, and each narrative up to its cited answer.

    Example: keystone report out/first out/second --qrels qrels.txt --out report.html
    """
    from runs.cli.outputs import check_outputs
    from runs.report.html.write import write_report
    from runs.report.terminal import progress_bars

    check_outputs([*runs, qrels], {"--out": out})
    with progress_bars(quiet) as progress, progress("Writing the report", None):
        write_report(runs, out, qrels)
    say(out)
