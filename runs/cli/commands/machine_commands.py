"""The commands `keystone demo` and `doctor`."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.options import CORES, Json, Quiet, Threads
from keystone.runs.report.say import say, say_result


def demo(
    out: Annotated[Path, typer.Option(help="The folder for all files of the demo.")] = Path("demo-out"),
    agent: Annotated[
        bool, typer.Option("--agent", help="Show a research agent's path through one narrative, and its answer.")
    ] = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Index the documentation of Django, make four runs for 12 narratives, compare scores and costs, and report them.

    Example: keystone demo --out demo-out
    """
    from keystone.runs.demo.main import run_agent_demo, run_demo
    from keystone.runs.report.terminal import progress_bars

    with progress_bars(quiet) as progress:
        report = (run_agent_demo if agent else run_demo)(out, threads, progress)
    report()


def doctor(
    opensearch: Annotated[
        str | None,
        typer.Option(help="Check this cluster, URL[,URL...], or an index in it, URL/NAME, in place of the machine."),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            help="Check whether the analyzers and embeddings of this index fit the languages of its documents."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Probe the server of a language model at this base URL, with about 25 requests."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="With --model, the model's name.", show_default="the server's only model")
    ] = None,
    key_env: Annotated[
        str | None, typer.Option(help="With --model, the environment variable that holds the key.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="With --model, the folder of runs, whose servers.jsonl keeps the facts.")
    ] = Path("out"),
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Check that this machine, an index, a cluster or a model's server has all that a run needs.

    For this machine, it also measures the speed of BM25 and of embeddings, and says how long a large corpus takes.

    If something is missing, the exit code is 1.

    Example: keystone doctor --model http://localhost:8000/v1
    """
    from keystone.runs.doctor.cluster import examine_cluster
    from keystone.runs.doctor.machine import Finding, examine_index, examine_machine, examine_packages, measure_speeds

    if sum(map(bool, (opensearch, index, model))) > 1:
        raise UserError("found several of --opensearch, --index and --model, expected one of them")
    if not model and (name or key_env):
        raise UserError("found --name or --key-env without --model, expected the URL of a model's server")
    findings: Iterable[Finding] = examine_cluster(opensearch) if opensearch else ()
    if index:
        findings = examine_index(index)
    if model:
        from keystone.runs.doctor.model_server import probe_model_server
        from keystone.runs.doctor.server_records import keep_facts

        probe = probe_model_server(model, name, key_env)
        findings = (*probe.findings, Finding("ok", "kept", str(keep_facts(out, probe.facts))))
    elif not opensearch and not index:
        findings = chain(examine_machine(), examine_packages(), measure_speeds())
    found = []
    for finding in findings:
        found.append(finding)
        if not json:
            say(f"{finding.state:8} {finding.subject}: {finding.message}")
    if json:
        say_result("doctor", model or opensearch or index, found)
    if any(finding.state == "problem" for finding in found):
        raise typer.Exit(1)
