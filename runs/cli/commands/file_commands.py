"""The commands `keystone fuse`, `validate`, `trace` and `explain`, for files."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.leaderboard import list_files
from keystone.runs.cli.options import REPORTED_RECORDS, Json, Quiet, check_outputs
from keystone.runs.report.say import say, say_output, say_result
from keystone.runs.wording import plural

if TYPE_CHECKING:
    from keystone.runs.tracks.validate import Verdict
    from keystone.runs.tracks.violations import Repair

REPORTED_REPAIRS = 20
"""The number of repairs of a file that are printed one by one."""


def fuse(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run files, folders of them, or run directories, whose last ranking counts."),
    ],
    out: Annotated[Path, typer.Option(help="The run file to write.")],
    method: Annotated[
        str, typer.Option(help="The method: rrf, sum, mnz, condorcet, ... See the page on methods.")
    ] = "rrf",
    weights: Annotated[
        str | None,
        typer.Option(help="A weight for each run, such as 2,1. A run of weight 0 is left out.", show_default="all 1"),
    ] = None,
    norm: Annotated[
        str | None,
        typer.Option(
            help="The normalisation of scores: min-max, max, zmuv, ... See the page on methods.", show_default="min-max"
        ),
    ] = None,
    set: Annotated[list[str] | None, typer.Option(help="A parameter of the method, such as k=60.")] = None,
    depth: Annotated[int, typer.Option(min=1, help="The most documents of each topic.")] = 1000,
    tag: Annotated[str, typer.Option(help="The run tag to write.")] = "fused",
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Fuse run files into one.

    Example: keystone fuse a.trec b.trec --method rrf --set k=60 --weights 2,1 --out fused.trec
    """
    from keystone.fusion.fuse import FusionSettings
    from keystone.fusion.methods import find_method
    from keystone.runs.trec.fuse_files import fuse_files, parse_numbers
    from keystone.runs.trec.run_files import write_run

    check_outputs(runs, {"--out": out})
    weight_of_run = None if weights is None else parse_numbers("--weights", weights.split(","))
    assignments = [setting.partition("=") for setting in set or []]
    values = parse_numbers("--set", [value for _, _, value in assignments])
    parameters = {name: value for (name, _, _), value in zip(assignments, values, strict=True)}
    settings = FusionSettings(find_method(method), depth, norm, parameters)
    cautions = list[str]()
    write_run(out, fuse_files(list_files(runs), tag, settings, weight_of_run, cautions.append))
    say_output("fuse", runs, out, json, cautions)


def validate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Retrieval runs and JSONL answer files (.gz and .zst, too), or folders. In a folder, Keystone judges "
            "files with a track's file name, at any depth. If it has none, Keystone judges all files directly in it.",
        ),
    ],
    topics: Annotated[Path, typer.Option(help="The track's topics, in any form (see the page on corpora).")],
    track: Annotated[
        str | None,
        typer.Option(help="The track whose rules apply, such as rag26.", show_default="detected for each file"),
    ] = None,
    index: Annotated[
        Path | None, typer.Option(help="An index of the track's corpus, which must have each ranked or cited id.")
    ] = None,
    fix: Annotated[Path | None, typer.Option(help="Write the repaired file here and judge it. Takes one FILE.")] = None,
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Check submission files of any team by the rules of a track. With --fix, repair a file.

    If a file is invalid, the exit code is 1.

    Example: keystone validate out/my-run --topics topics.jsonl
    """
    from keystone.indexing.index import open_index
    from keystone.retrieval.backends import BACKENDS, open_store
    from keystone.runs.pipeline.track_of_file import find_track
    from keystone.runs.track_rules import TRACKS, set_topic_limits
    from keystone.runs.tracks import validate as rules
    from keystone.runs.tracks.validate import check_index
    from keystone.runs.trec.topics import read_topics

    if track is not None and track not in TRACKS:
        raise UserError(f"--track {track}: unknown; expected one of {', '.join(TRACKS)}")
    found = rules.find_files(files)
    if fix is not None and len(found) > 1:
        raise UserError(f"--fix {fix}: found {len(found)} files to repair into one, expected one file")
    check_outputs([*files, topics], {"--fix": fix})
    narratives = read_topics(topics)
    opened = open_index(index) if index else None
    store = open_store(opened) if opened else None
    if opened and BACKENDS[opened.backend].grows:
        raise UserError(f"--index {index}: found a server, which does not list its ids; expected an index that does")
    invalid, verdicts = 0, []
    runs: dict[tuple[str, bool], dict[str, Path]] = {}
    for file in found:
        try:
            known = set_topic_limits(TRACKS[track] if track else find_track(file, "--track"), narratives)
            repairs, verdict = (
                rules.fix(file, fix, known, narratives) if fix else ([], rules.judge(file, known, narratives))
            )
            verdict = replace(verdict, violations=[*verdict.violations, *rules.check_runs(fix or file, known, runs)])
            if store:
                missing = check_index(fix or file, known, store)
                verdict = replace(verdict, violations=[*verdict.violations, *missing])
        except UserError as error:
            say(f"error: {error}", err=True)
            verdicts.append({"file": file, "valid": False, "error": str(error)})
            invalid += 1
            continue
        judged = Judged(file, fix, known.name, repairs, verdict)
        invalid += not judged.valid
        verdicts.append({"valid": judged.valid, **asdict(judged)})
        if not json:
            _print_verdict(judged)
    if json:
        say_result("validate", files, verdicts)
    elif len(found) > 1:
        say(f"{plural(len(found), 'file')}: {len(found) - invalid} valid, {invalid} invalid")
    if invalid:
        raise typer.Exit(1)


def trace(
    file: Annotated[Path, typer.Argument(help="A run directory, or its trace.jsonl.")],
    topic: Annotated[str | None, typer.Argument(help="The topic to print.", show_default="all")] = None,
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Print what a structure-aware reader did: its views, actions and costs, and why it ended.

    Example: keystone trace out/my-run 12
    """
    from keystone.runs.report.trace import format_trace, read_trace

    steps = read_trace(file)
    lines = list(format_trace(steps, topic))
    if json:
        say_result("trace", file, [step for step in steps if topic in (None, step.topic_id)])
        return
    for line in lines:
        say(line)


def explain(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    topic: Annotated[str, typer.Argument(help="The id of a topic.")],
    document: Annotated[str, typer.Argument(help="The id of a document, not of its segment.")],
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Show why a document has its place, or was cut: its ranks, and its place without each query and engine.

    Example: keystone explain out/my-run 12 d42
    """
    from keystone.runs.report.explain import explain as explained
    from keystone.runs.report.explain import format_explanation

    found = explained(directory, topic, document)
    if json:
        say_result("explain", directory, found)
        return
    for line in format_explanation(found):
        say(line)


@dataclass(frozen=True, slots=True)
class Judged:
    """A file with its verdict by the rules of a track. If it was repaired, the verdict is on the file `fixed`."""

    file: Path
    fixed: Path | None
    track: str
    repairs: "list[Repair]"
    verdict: "Verdict"

    @property
    def errors(self) -> int:
        """The number of errors."""
        return sum(violation.severity == "error" for violation in self.verdict.violations)

    @property
    def valid(self) -> bool:
        """Whether the file has no error."""
        return not self.errors


def _print_verdict(judged: Judged) -> None:
    from keystone.runs.tracks import validate as rules

    for repair in judged.repairs[:REPORTED_REPAIRS]:
        say(f"{judged.file}:{repair.line}: repaired: {repair.message}")
    if left := judged.repairs[REPORTED_REPAIRS:]:
        say(f"{judged.file}: {plural(len(left), 'further repair')}")
    file, found = judged.fixed or judged.file, judged.verdict.violations
    for violation, last in rules.cap_violations(found, REPORTED_RECORDS):
        place = f"{file}:{violation.line}" if violation.line else f"{file}"
        further = "; further ones are counted" * last
        say(f"{place}: {violation.severity}: {violation.message}{further}")
    summary = list(rules.summarise_violations(found))
    for line in summary if len(summary) < len(found) else []:
        say(f"{file}: {line}")
    say(f"{file}: {judged.verdict.size}")
    validity = f"{'valid' if judged.valid else 'invalid'} for {judged.track}"
    warnings = plural(len(found) - judged.errors, "warning")
    say(f"{file}: {validity}: {plural(judged.errors, 'error')}, {warnings}")
