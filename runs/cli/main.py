"""The command line: `keystone index | run | answer | record | fuse | validate | evaluate | tune | demo | doctor`.

Commands import large packages only if they need them. Exit codes:

* 0: success
* 1: an error, or an invalid submission
* 2: wrong usage
* 3: the run waits for replies
* 130: an interrupt
"""

import errno
import itertools
import os
import sys
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indexing.build.interrupts import INTERRUPTED, interrupts_end_the_process
from indexing.errors import BadRecord, UserError
from runs.report.say import say
from runs.wording import plural

if TYPE_CHECKING:
    from retrieval.types import Topic
    from runs.pipeline.directory import Stage
    from runs.tracks.rules import Track

RESUMES = "the same command continues from the finished work"
RESTARTS = "the same command begins anew"
LEFT_BY_COMMAND = {
    "index": RESUMES,
    "run": RESUMES,
    "demo": RESUMES,
    "answer": f"with --out, {RESUMES}; without it, no answer is kept",
    "tune": f"the model's replies are kept, measurements are lost; {RESTARTS}",
}
"""The work that each interrupted command leaves, and the effect of running it again."""


app = typer.Typer(
    help="TREC-style retrieval and answers: a corpus and narratives become valid, evaluated submissions.\n\n"
    "Start with: keystone demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress bars, only errors and results.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads to use.", show_default="all cores")]
CORES = os.cpu_count() or 1
FORMATS = "folder, ir_datasets, jsonl, pyserini, segments, trec or wikitext."
GRACE_S = 1.0
"""After an interrupt, Keystone waits this long for a command to end by itself."""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of a disk that is full or read-only."""
REPORTED_RECORDS = 5
"""The number of skipped records, and of violations of each kind, that are printed one by one."""
REPORTED_REPAIRS = 20
"""The number of repairs of a file that are printed one by one."""


def _print_version(asked: bool) -> None:
    if asked:
        say(f"keystone {version('keystone-rag')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before a command."""


class Engine(StrEnum):
    """The engine that runs a build."""

    local = "local"
    ray = "ray"


class Dense(StrEnum):
    """The documents to embed."""

    all = "all"
    pool = "pool"
    none = "none"


@app.command()
def index(
    corpus: Annotated[
        str,
        typer.Argument(
            help="A file or folder (also .gz, .zst), ir_datasets:ID or pyserini:NAME. Or an index searched in place: "
            "rest:URL/NAME of a Pyserini server, or opensearch:URL/NAME that another machine loaded."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The index folder to make.")],
    format: Annotated[str | None, typer.Option(help=FORMATS, show_default="guessed")] = None,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place", help="Search the prebuilt index pyserini:NAME itself, and make no index of its documents."
        ),
    ] = False,
    segments: Annotated[
        Path | None, typer.Option(help="A file, or pyserini:NAME, with the MS MARCO V2.1 segments of the documents.")
    ] = None,
    windows: Annotated[
        bool,
        typer.Option(
            "--windows",
            help="Cut MS MARCO V2.1 documents into windows. Tracks reject them.",
        ),
    ] = False,
    dense: Annotated[
        Dense,
        typer.Option(
            help="The documents to embed: all while indexing; or (pool) those that BM25 finds, during a run; or none."
        ),
    ] = (Dense.all),
    no_dense: Annotated[bool, typer.Option("--no-dense", help="The same as --dense none.")] = False,
    embedding: Annotated[str, typer.Option(help="The embedding model.")] = "all-MiniLM-L6-v2",
    embedding_url: Annotated[
        str | None, typer.Option(help="The OpenAI-compatible endpoint of the model, such as http://localhost:8000/v1.")
    ] = None,
    embedding_window: Annotated[
        int | None,
        typer.Option(min=1, help="The most tokens of a text for the model.", show_default="as the endpoint reports"),
    ] = None,
    embedding_key_env: Annotated[
        str | None,
        typer.Option(help="The environment variable with the key of the endpoint.", show_default="OPENAI_API_KEY"),
    ] = None,
    query_prefix: Annotated[str, typer.Option(help="Text before each query, if the model needs one.")] = "",
    passage_prefix: Annotated[str, typer.Option(help="Text before each passage, if the model needs one.")] = "",
    faiss: Annotated[str, typer.Option(help="The kind of FAISS index: Flat, HNSW32, 'IVF256,Flat', ...")] = "Flat",
    faiss_shard: Annotated[
        int | None,
        typer.Option(
            min=1, help="Split vectors into memory-mapped files of this many documents.", show_default="one file"
        ),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(
            help="Read and embed on this machine, or with Ray on the cluster at RAY_ADDRESS (else a local one)."
        ),
    ] = Engine.local,
    opensearch: Annotated[
        str | None,
        typer.Option(help="Load the index into an OpenSearch cluster, to URL[,URL...]/NAME: see docs/opensearch.md."),
    ] = None,
    shards: Annotated[int, typer.Option(min=1, help="Primary shards of the index in OpenSearch.")] = 1,
    replicas: Annotated[
        int, typer.Option(min=0, help="Copies of each shard in OpenSearch. They are made at the end.")
    ] = 0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first record that is no valid document.")
    ] = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Index a corpus: make its document store, BM25 index and embeddings.

    If the command is interrupted, the same command continues.

    It skips invalid records, and reports them with file and line.

    Example: keystone index corpus.jsonl.gz --out index
    """
    from indexing.build.settings import BuildSettings
    from indexing.types import Embedding
    from runs.cli.index import attach_index, is_attached, make_index, target_of
    from runs.cli.outputs import check_outputs
    from runs.report.terminal import progress_bars

    check_outputs([corpus, segments], {"--out": out})
    model = Embedding(embedding, embedding_url, embedding_window, query_prefix, passage_prefix, embedding_key_env)
    numbers = itertools.count(1)

    def tell(error: BadRecord) -> None:
        if strict:
            raise error
        if (number := next(numbers)) <= REPORTED_RECORDS:
            say(f"left out: {error}{'; further ones are counted' if number == REPORTED_RECORDS else ''}", err=True)

    settings = BuildSettings(
        format=format,
        segments=segments,
        windows=windows,
        embedding=None if no_dense or dense is Dense.none else model,
        faiss=None if dense is Dense.pool else faiss,
        faiss_shard=faiss_shard,
        opensearch=target_of(opensearch, shards, replicas),
        engine=engine,
        threads=threads,
    )
    with progress_bars(quiet) as progress:
        if in_place or is_attached(corpus):
            made, built = attach_index(corpus, out, settings, progress)
        else:
            made, built = make_index(corpus, out, settings, progress, tell)
    if made.cut:
        summary = f"{made.folder}: documents longer than the model's window, embedded by their beginning: {made.cut}"
        say(summary, err=True)
    if made.left_out:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(made.left_out.items()))
        summary = f"{made.folder}: records left out of the corpus: {sum(made.left_out.values())} ({kinds})"
        if strict:
            raise UserError(f"{summary}; --strict expects none")
        say(summary, err=True)
    if made.segments.get("official") or (windows and made.segments):
        official, cut = made.segments["official"], made.segments["windows"]
        say(f"{made.folder}: segments: {official:,} official, {plural(cut, 'window')}", err=True)
    number = "documents of a server" if made.documents is None else plural(made.documents, "document")
    say(f"{made.folder}: {number}{'' if built else ', already indexed'}")


@app.command()
def run(
    config: Annotated[Path | None, typer.Argument(help="The YAML file that describes the run.")] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="A preset with defaults for the file: keystone, or a run of the paper. See docs/keystone.md."
        ),
    ] = None,
    set: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE, which overrides the file. Repeat for several keys.")
    ] = None,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Make a run, or finish an interrupted one: queries, rankings, grades, answers, submission files.

    If the command writes requests that wait for replies (model.backend: batch), the exit code is 3.

    Example: keystone run run.yaml --set retrieval.depth=500
    """
    from runs.config.read import read_config

    if config is None and preset is None and not set:
        raise UserError("found no YAML file, no --preset and no --set, expected at least one of them")
    settings = read_config(config, set, preset)

    from runs.cli.outputs import check_run_outputs
    from runs.pipeline import stages
    from runs.pipeline.manifest import list_remarks
    from runs.report.terminal import progress_bars

    check_run_outputs(settings, [config], {"the run directory": settings.out / settings.run_id})

    def announce(stage: "Stage", reused: bool) -> None:
        if not quiet:
            say(f"{stage.name}: {'kept' if reused else 'made'} {', '.join(stage.artifacts)}", err=True)

    with progress_bars(quiet) as progress:
        directory = stages.run(settings, threads, progress, announce)
    if not quiet:
        for line in list_remarks(directory):
            say(line, err=True)
    if settings.has_default_team and not quiet:
        say(f"warning: team_id: {settings.team_id!r} is the default: set your team's name before you submit", err=True)
    say(directory)


@app.command()
def answer(
    config: Annotated[
        Path | None, typer.Argument(help="A YAML file, as for run. The command ignores its index and topics.")
    ] = None,
    topics: Annotated[Path, typer.Option(help="Narratives, in any format of topics; - reads them from a pipe.")] = Path(
        "-"
    ),
    index: Annotated[Path, typer.Option(help="The index with the documents.")] = Path("index"),
    out: Annotated[
        Path | None, typer.Option(help="The file to write, or to continue.", show_default="standard output")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="A preset, as for run.")] = None,
    set: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE, which overrides the file. Repeat for several keys.")
    ] = None,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Answer narratives as they arrive. Write one line of the track's answer file for each topic, in any order.

    If the command is interrupted, the same command continues and skips topics that the file already answers.

    Example: keystone answer --topics topics.jsonl --index index --out answers.jsonl
    """
    from runs.cli.outputs import check_run_outputs
    from runs.pipeline.answering import bulk as answering
    from runs.report.terminal import progress_bars

    with progress_bars(quiet) as progress:
        settings = answering.make_config(config, set or [], preset, topics, index)
        check_run_outputs(settings, [config], {"--out": out})
        missed = answering.answer_to_file(settings, out, threads, progress)
    for fallback in missed if not quiet else []:
        say(f"{fallback.topic_id}: {fallback.step}: {fallback.reason}", err=True)


@app.command()
def record(
    replies: Annotated[Path, typer.Argument(help="The stored replies of a run, such as out/replies.sqlite.")],
    out: Annotated[Path, typer.Option(help="The JSONL file to write.")],
) -> None:
    """Write the stored replies of a model to a file. With this file, a run can be repeated without the model.

    Example: keystone record out/replies.sqlite --out replies.jsonl
    """
    from generation.llm import replay
    from runs.cli.outputs import check_outputs

    check_outputs([replies], {"--out": out})
    say(f"{out}: {plural(replay.record_replies(replies, out), 'reply', 'replies')}")


@app.command()
def fuse(
    runs: Annotated[list[Path], typer.Argument(help="Run files of any system.")],
    out: Annotated[Path, typer.Option(help="The run file to write.")],
    method: Annotated[str, typer.Option(help="The method: rrf, sum, mnz, condorcet, ... See docs/fusion.md.")] = "rrf",
    weights: Annotated[
        str | None,
        typer.Option(help="A weight for each run, such as 2,1. A run of weight 0 is left out.", show_default="all 1"),
    ] = None,
    norm: Annotated[
        str | None,
        typer.Option(help="The normalisation of scores, for methods that look at scores.", show_default="min-max"),
    ] = None,
    set: Annotated[list[str] | None, typer.Option(help="A parameter of the method, such as k=60.")] = None,
    depth: Annotated[int, typer.Option(min=1, help="The most documents of each topic.")] = 1000,
    tag: Annotated[str, typer.Option(help="The run tag to write.")] = "fused",
) -> None:
    """Fuse run files into one.

    Example: keystone fuse a.trec b.trec --method rrf --set k=60 --weights 2,1 --out fused.trec
    """
    from fusion.fuse import FusionSettings
    from runs.cli.outputs import check_outputs
    from runs.trec.fuse_files import fuse_files, parse_numbers
    from runs.trec.run_files import write_run

    check_outputs(runs, {"--out": out})
    weight_of_run = None if weights is None else parse_numbers("--weights", weights.split(","))
    assignments = [setting.partition("=") for setting in set or []]
    values = parse_numbers("--set", [value for _, _, value in assignments])
    parameters = {name: value for (name, _, _), value in zip(assignments, values, strict=True)}
    write_run(out, fuse_files(runs, tag, FusionSettings(method, depth, norm, parameters), weight_of_run))
    say(out)


@app.command()
def validate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Retrieval runs and JSONL answer files (.gz and .zst, too), or folders. In a folder, Keystone judges "
            "files with a track's file name, at any depth. If it has none, Keystone judges all files directly in it.",
        ),
    ],
    topics: Annotated[Path, typer.Option(help="The track's topics.")],
    track: Annotated[
        str | None, typer.Option(help="The track whose rules apply.", show_default="detected for each file")
    ] = None,
    fix: Annotated[Path | None, typer.Option(help="Write the repaired file here and judge it. Takes one FILE.")] = None,
) -> None:
    """Judge submission files of any team by the rules of a track. If one of them is invalid, the exit code is 1.

    Example: keystone validate out/my-run --topics topics.jsonl
    """
    from runs.cli.outputs import check_outputs
    from runs.tracks import validate as rules
    from runs.tracks.rules import TRACKS
    from runs.trec.topics import read_topics

    if track is not None and track not in TRACKS:
        raise UserError(f"--track {track}: unknown; expected one of {', '.join(TRACKS)}")
    found = rules.find_files(files)
    if fix is not None and len(found) > 1:
        raise UserError(f"--fix {fix}: found {len(found)} files to repair into one, expected one file")
    check_outputs([*files, topics], {"--fix": fix})
    narratives = read_topics(topics)
    invalid = 0
    for file in found:
        try:
            invalid += not _is_valid(file, fix, TRACKS[track] if track else rules.detect_track(file), narratives)
        except UserError as error:
            say(f"error: {error}", err=True)
            invalid += 1
    if len(found) > 1:
        say(f"{plural(len(found), 'file')}: {len(found) - invalid} valid, {invalid} invalid")
    if invalid:
        raise typer.Exit(1)


def _is_valid(file: Path, fix: Path | None, track: "Track", topics: "list[Topic]") -> bool:
    """Judge one file and print the verdict; tell whether the file is valid."""
    from runs.tracks import validate as rules
    from runs.tracks.rules import set_topic_limits

    known = set_topic_limits(track, topics)
    if fix is None:
        verdict = rules.judge(file, known, topics)
    else:
        repairs, verdict = rules.fix(file, fix, known, topics)
        for repair in repairs[:REPORTED_REPAIRS]:
            say(f"{file}:{repair.line}: repaired: {repair.message}")
        if left := repairs[REPORTED_REPAIRS:]:
            say(f"{file}: {plural(len(left), 'further repair')}")
        file = fix
    found = verdict.violations
    for violation, last in rules.cap_violations(found, REPORTED_RECORDS):
        place = f"{file}:{violation.line}" if violation.line else f"{file}"
        further = "; further ones are counted" * last
        say(f"{place}: {violation.severity}: {violation.message}{further}")
    summary = list(rules.summarise_violations(found))
    for line in summary if len(summary) < len(found) else []:
        say(f"{file}: {line}")
    say(f"{file}: {verdict.size}")
    errors = sum(violation.severity == "error" for violation in found)
    validity = f"{'invalid' if errors else 'valid'} for {known.name}"
    say(f"{file}: {validity}: {plural(errors, 'error')}, {plural(len(found) - errors, 'warning')}")
    return not errors


@app.command()
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

    from indexing.io.files import written
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
        with written(json) as file:
            file.write(orjson.dumps(build_report(evaluations), option=orjson.OPT_INDENT_2))


@app.command()
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


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for all files of the demo.")] = Path("demo-out"),
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Index Python's own documentation, make two runs for 12 narratives, and compare their scores.

    Example: keystone demo --out demo-out
    """
    from runs.demo.main import run_demo
    from runs.report.terminal import progress_bars

    with progress_bars(quiet) as progress:
        report = run_demo(out, threads, progress)
    report()


@app.command()
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


@cache
def report_interrupt() -> None:
    """Report once the work that the interrupted command leaves."""
    command = next(iter(sys.argv[1:]), "")
    say(f"interrupted: {LEFT_BY_COMMAND.get(command, f'nothing was written; {RESTARTS}')}", err=True)


def main() -> None:
    """Run the command line. If the user caused an error, print one message without a traceback."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        with interrupts_end_the_process(GRACE_S, report_interrupt):
            app()
    except UserError as error:
        say(f"{error}" if error.waits else f"error: {error}", err=True)
        sys.exit(3 if error.waits else 1)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        where = error.filename or "standard output, or the folder of temporary files"
        say(f"error: {where}: cannot be written: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the disk would refuse the remaining output again at the end
        sys.exit(1)
    except SystemExit as error:
        if error.code == INTERRUPTED:
            report_interrupt()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)  # at once, without waiting for threads that still compute
        raise


if __name__ == "__main__":
    main()
