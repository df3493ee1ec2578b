"""The commands `keystone demo` and `doctor`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runs.cli.options import CORES, Quiet, Threads
from runs.report.say import say

if TYPE_CHECKING:
    pass


def demo(
    out: Annotated[Path, typer.Option(help="The folder for all files of the demo.")] = Path("demo-out"),
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Index Python's documentation, make three runs for 12 narratives, compare their scores, and report them.

    Example: keystone demo --out demo-out
    """
    from runs.demo.main import run_demo
    from runs.report.terminal import progress_bars

    with progress_bars(quiet) as progress:
        report = run_demo(out, threads, progress)
    report()


def doctor(
    opensearch: Annotated[
        str | None,
        typer.Option(help="Check this cluster, URL[,URL...], or an index in it, URL/NAME, in place of the machine."),
    ] = None,
) -> None:
    """Check that this machine, or a cluster, has all that a run needs. If something is missing, the exit code is 1.

    Example: keystone doctor
    """
    from runs.doctor.cluster import examine_cluster
    from runs.doctor.machine import examine_machine

    problems = 0
    for finding in examine_cluster(opensearch) if opensearch else examine_machine():
        say(f"{finding.state:8} {finding.subject}: {finding.message}")
        problems += finding.state == "problem"
    if problems:
        raise typer.Exit(1)
