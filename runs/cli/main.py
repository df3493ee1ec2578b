"""The command line: `keystone index | run | answer | record | fuse | validate | evaluate | tune | demo | doctor`.

Heavy packages are imported inside the commands that need them. Exit codes: 0 done, 1 an error or an invalid
submission, 2 wrong usage, 3 replies are awaited, and 130 as everywhere where it was interrupted.
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

GOES_ON = "the same command goes on from what is done"
ANEW = "the same command begins anew"
KEPT = {
    "index": GOES_ON,
    "run": GOES_ON,
    "demo": GOES_ON,
    "answer": f"with --out, {GOES_ON}; without it, no answer is kept",
    "tune": f"a model's replies are kept, no measurement is; {ANEW}",
}
"""What is left of a command that was interrupted, and what the same command does then."""


app = typer.Typer(
    help="TREC-style retrieval and answers: a corpus and narratives in, a valid and evaluated submission out.\n\n"
    "Start with: keystone demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars; only errors and results.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads to use.", show_default="all cores")]
CORES = os.cpu_count() or 1
FORMATS = "folder, ir_datasets, jsonl, pyserini, segments, trec or wikitext."
GRACE = 1.0
"""Seconds after an interrupt in which a command ends by itself."""
REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""What a disk that is full or read-only says."""
TOLD = 5
"""Records left out, and violations of a kind, that are reported one by one."""
REPAIRS_TOLD = 20
"""Repairs of a file that are reported one by one."""


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
    """What can be said before a command."""


class Engine(StrEnum):
    """What a build runs on."""

    local = "local"
    ray = "ray"


class Dense(StrEnum):
    """Which documents are embedded."""

    all = "all"
    pool = "pool"
    none = "none"


@app.command()
def index(
    corpus: Annotated[
        str,
        typer.Argument(
            help="A file or folder (.gz, .zst too), ir_datasets:ID or pyserini:NAME. Or what is searched where it is: "
            "rest:URL/NAME of a Pyserini server, opensearch:URL/NAME that was loaded elsewhere."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The index folder to make.")],
    format: Annotated[str | None, typer.Option(help=FORMATS, show_default="guessed")] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Search pyserini:NAME as it is; make no index of its documents.")
    ] = False,
    segments: Annotated[
        Path | None, typer.Option(help="MS MARCO V2.1 segments that cut the documents; a file or pyserini:NAME.")
    ] = None,
    windows: Annotated[
        bool, typer.Option("--windows", help="Cut MS MARCO V2.1 documents without segments; no track knows the pieces.")
    ] = False,
    dense: Annotated[Dense, typer.Option(help="Documents to embed: all, when indexing; those found, when run.")] = (
        Dense.all
    ),
    no_dense: Annotated[bool, typer.Option("--no-dense", help="The same as --dense none.")] = False,
    embedding: Annotated[str, typer.Option(help="The embedding model.")] = "all-MiniLM-L6-v2",
    embedding_url: Annotated[
        str | None, typer.Option(help="Its OpenAI-compatible endpoint, such as http://localhost:8000/v1.")
    ] = None,
    embedding_window: Annotated[
        int | None, typer.Option(min=1, help="Tokens that it takes.", show_default="asked of the endpoint")
    ] = None,
    embedding_key_env: Annotated[
        str | None, typer.Option(help="The environment variable with its key.", show_default="OPENAI_API_KEY")
    ] = None,
    query_prefix: Annotated[str, typer.Option(help="Put before what is asked, as the model wants it.")] = "",
    passage_prefix: Annotated[str, typer.Option(help="Put before what is searched.")] = "",
    faiss: Annotated[str, typer.Option(help="The FAISS index: Flat, HNSW32, 'IVF256,Flat', ...")] = "Flat",
    faiss_shard: Annotated[
        int | None,
        typer.Option(min=1, help="Documents a file; files are mapped.", show_default="one file"),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(help="Read and embed here, or on Ray: the cluster at RAY_ADDRESS, else a local one."),
    ] = Engine.local,
    opensearch: Annotated[
        str | None,
        typer.Option(help="Load it all to URL[,URL...]/NAME of an OpenSearch cluster: see docs/opensearch.md."),
    ] = None,
    shards: Annotated[int, typer.Option(min=1, help="Primary shards there.")] = 1,
    replicas: Annotated[int, typer.Option(min=0, help="Copies of each shard there, made in the end.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first record that is no document.")] = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Index a corpus: document store, BM25 index, embeddings. Stopped at any moment, the same command goes on.

    A record that is no document is left out, reported with file and line, and counted.

    Example: keystone index corpus.jsonl.gz --out index
    """
    from indexing.types import Embedding
    from runs.cli.index import make_index
    from runs.cli.outputs import check_outputs
    from runs.report.terminal import progress_bars

    check_outputs([corpus, segments], {"--out": out})
    model = Embedding(embedding, embedding_url, embedding_window, query_prefix, passage_prefix, embedding_key_env)
    told = itertools.count(1)

    def tell(error: BadRecord) -> None:
        if strict:
            raise error
        if (number := next(told)) <= TOLD:
            say(f"left out: {error}{'; further ones are counted' if number == TOLD else ''}", err=True)

    with progress_bars(quiet) as progress:
        made, built = make_index(
            corpus,
            out,
            format=format,
            in_place=in_place,
            segments=segments,
            windows=windows,
            embedding=None if no_dense or dense is Dense.none else model,
            faiss=None if dense is Dense.pool else faiss,
            faiss_shard=faiss_shard,
            opensearch=opensearch,
            shards=shards,
            replicas=replicas,
            engine=engine,
            threads=threads,
            progress=progress,
            report=tell,
        )
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
        str | None, typer.Option(help="A run of the paper, or keystone, under the file: see docs/keystone.md.")
    ] = None,
    set: Annotated[list[str] | None, typer.Option(help="KEY=VALUE laid over the file; may be repeated.")] = None,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Make a run, or finish an interrupted one: queries, rankings, grades, answers, submission files.

    Exit code 3: requests were written that wait for replies (model.backend: batch).

    Example: keystone run run.yaml --set retrieval.depth=500
    """
    from runs.config.read import read_config

    if config is None and preset is None and not set:
        raise UserError("found no YAML file, no --preset and no --set, expected one of them or several")
    settings = read_config(config, set, preset)

    from runs.cli.outputs import check_run
    from runs.pipeline import stages
    from runs.pipeline.manifest import told
    from runs.report.terminal import progress_bars

    check_run(settings, [config], {"the run directory": settings.out / settings.run_id})

    def announce(stage: "Stage", reused: bool) -> None:
        if not quiet:
            say(f"{stage.name}: {'kept' if reused else 'made'} {', '.join(stage.artifacts)}", err=True)

    with progress_bars(quiet) as progress:
        directory = stages.run(settings, threads, progress, announce)
    if not quiet:
        for line in told(directory):
            say(line, err=True)
    if settings.unnamed and not quiet:
        say(f"warning: team_id: {settings.team_id!r} is the default: set your team's before you submit", err=True)
    say(directory)


@app.command()
def answer(
    config: Annotated[
        Path | None, typer.Argument(help="A YAML file as for run; its index and topics are not used.")
    ] = None,
    topics: Annotated[Path, typer.Option(help="Narratives, in any form of topics; - reads them from a pipe.")] = Path(
        "-"
    ),
    index: Annotated[Path, typer.Option(help="The index to answer from.")] = Path("index"),
    out: Annotated[
        Path | None, typer.Option(help="The file to write, or to go on with.", show_default="standard output")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="As for run.")] = None,
    set: Annotated[list[str] | None, typer.Option(help="KEY=VALUE laid over the file; may be repeated.")] = None,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Answer narratives, each as soon as it can be: one line of the track's answer file a topic, in any order.

    Stopped at any moment, the same command goes on: topics that the file answers are not asked again.

    Example: keystone answer --topics topics.jsonl --index index --out answers.jsonl
    """
    from runs.cli.outputs import check_run
    from runs.pipeline.answering import bulk as answering
    from runs.report.terminal import progress_bars

    with progress_bars(quiet) as progress:
        settings = answering.settings(config, set or [], preset, topics, index)
        check_run(settings, [config], {"--out": out})
        missed = answering.answer_file(settings, out, threads, progress)
    for fallback in missed if not quiet else []:
        say(f"{fallback.topic_id}: {fallback.step}: {fallback.reason}", err=True)


@app.command()
def record(
    replies: Annotated[Path, typer.Argument(help="The replies that a run has kept, such as out/replies.sqlite.")],
    out: Annotated[Path, typer.Option(help="The JSONL file to write.")],
) -> None:
    """Write the replies of a model as a file that a run can be made from again, without the model.

    Example: keystone record out/replies.sqlite --out replies.jsonl
    """
    from generation.llm import replay
    from runs.cli.outputs import check_outputs

    check_outputs([replies], {"--out": out})
    say(f"{out}: {plural(replay.record(replies, out), 'reply', 'replies')}")


@app.command()
def fuse(
    runs: Annotated[list[Path], typer.Argument(help="Run files of any system.")],
    out: Annotated[Path, typer.Option(help="The run file to write.")],
    method: Annotated[str, typer.Option(help="rrf, sum, mnz, condorcet, ...: see docs/fusion.md.")] = "rrf",
    weights: Annotated[
        str | None, typer.Option(help="One a run, such as 2,1; a run of weight 0 is left out.", show_default="all 1")
    ] = None,
    norm: Annotated[
        str | None, typer.Option(help="Of scores, for methods that add them.", show_default="min-max")
    ] = None,
    set: Annotated[list[str] | None, typer.Option(help="A parameter of the method, such as k=60.")] = None,
    depth: Annotated[int, typer.Option(min=1, help="Documents a topic.")] = 1000,
    tag: Annotated[str, typer.Option(help="The run tag to write.")] = "fused",
) -> None:
    """Fuse run files into one.

    Example: keystone fuse a.trec b.trec --method rrf --set k=60 --weights 2,1 --out fused.trec
    """
    from runs.cli.outputs import check_outputs
    from runs.trec.fuse_files import FileFusion, fuse_files, numbers
    from runs.trec.run_files import write_run

    check_outputs(runs, {"--out": out})
    heavy = None if weights is None else numbers("--weights", weights.split(","))
    named = [setting.partition("=") for setting in set or []]
    values = numbers("--set", [value for _, _, value in named])
    parameters = {name: value for (name, _, _), value in zip(named, values, strict=True)}
    write_run(out, fuse_files(runs, tag, FileFusion(method, depth, heavy, norm, parameters)))
    say(out)


@app.command()
def validate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Retrieval runs and JSONL answer files (.gz, .zst too), or folders: of a folder those files that a "
            "track names, such as the files to submit in run directories, or else all files in it.",
        ),
    ],
    topics: Annotated[Path, typer.Option(help="The track's topics.")],
    track: Annotated[
        str | None, typer.Option(help="The track whose rules apply.", show_default="what each file's form tells")
    ] = None,
    fix: Annotated[
        Path | None, typer.Option(help="Write here what the one file says, repaired, and judge that instead.")
    ] = None,
) -> None:
    """Judge submission files of any team; exit code 1 if a rule is broken in one of them.

    Example: keystone validate out/my-run --topics topics.jsonl
    """
    from runs.cli.outputs import check_outputs
    from runs.tracks import validate as rules
    from runs.tracks.rules import TRACKS
    from runs.trec.topics import read_topics

    if track is not None and track not in TRACKS:
        raise UserError(f"--track {track}: unknown; expected one of {', '.join(TRACKS)}")
    meant = rules.files_in(files)
    if fix is not None and len(meant) > 1:
        raise UserError(f"--fix {fix}: found {len(meant)} files to repair into one, expected one file")
    check_outputs([*files, topics], {"--fix": fix})
    narratives = read_topics(topics)
    invalid = 0
    for file in meant:
        try:
            invalid += not _is_valid(file, fix, TRACKS[track] if track else rules.track_of(file), narratives)
        except UserError as error:
            say(f"error: {error}", err=True)
            invalid += 1
    if len(meant) > 1:
        say(f"{plural(len(meant), 'file')}: {len(meant) - invalid} valid, {invalid} invalid")
    if invalid:
        raise typer.Exit(1)


def _is_valid(file: Path, fix: Path | None, track: "Track", topics: "list[Topic]") -> bool:
    """Judge one file and print the verdict."""
    from runs.tracks import validate as rules
    from runs.tracks.rules import with_limits

    known = with_limits(track, topics)
    if fix is None:
        judged = rules.judge(file, known, topics)
    else:
        repairs, judged = rules.fix(file, fix, known, topics)
        for repair in repairs[:REPAIRS_TOLD]:
            say(f"{file}:{repair.line}: repaired: {repair.message}")
        if left := repairs[REPAIRS_TOLD:]:
            say(f"{file}: {plural(len(left), 'further repair')}")
        file = fix
    found = judged.violations
    for violation, last in rules.capped(found, TOLD):
        place = f"{file}:{violation.line}" if violation.line else f"{file}"
        further = "; further ones are counted" * last
        say(f"{place}: {violation.severity}: {violation.message}{further}")
    summary = list(rules.counted(found))
    for line in summary if len(summary) < len(found) else []:
        say(f"{file}: {line}")
    say(f"{file}: {judged.seen}")
    errors = sum(violation.severity == "error" for violation in found)
    verdict = f"{'invalid' if errors else 'valid'} for {known.name}"
    say(f"{file}: {verdict}: {plural(errors, 'error')}, {plural(len(found) - errors, 'warning')}")
    return not errors


@app.command()
def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run files; the first is what the others are compared with.")],
    qrels: Annotated[Path, typer.Option(help="Judgments in TREC form.")],
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", "-m", help="As nDCG@20, R@100, P@10, MAP, MRR, judged@10; may be repeated."),
    ] = None,
    relevant_from: Annotated[
        int, typer.Option(min=1, help="The grade from which R, P, MAP and MRR count a document as relevant.")
    ] = 1,
    skip_own: Annotated[bool, typer.Option(help="Leave out a document with its topic's id, as BEIR does.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write means, topics and p-values here.")] = None,
    quiet: Quiet = False,
) -> None:
    """Measure runs with ranx and compare them by a paired test.

    Example: keystone evaluate out/a/narrative.trec out/b/narrative.trec --qrels qrels.txt -m nDCG@20 -m R@100
    """
    import orjson

    from indexing.io.files import written
    from runs.cli.outputs import check_outputs
    from runs.evaluation import measures
    from runs.report.terminal import print_cautions, print_evaluations, progress_bars

    check_outputs([*runs, qrels], {"--json": json})
    wanted = tuple(map(measures.parse_measure, measure)) if measure else measures.DEFAULT
    wanted = measures.relevant_from(wanted, relevant_from)

    from runs.evaluation.evaluate import as_json, evaluate_files

    with progress_bars(quiet) as progress, progress("Measuring", None):
        evaluations = evaluate_files(runs, qrels, wanted, skip_own)
    print_evaluations(evaluations)
    print_cautions(evaluations, quiet)
    if json:
        with written(json) as file:
            file.write(orjson.dumps(as_json(evaluations), option=orjson.OPT_INDENT_2))


@app.command()
def tune(
    config: Annotated[Path, typer.Argument(help="The YAML file of the run to tune.")],
    qrels: Annotated[Path, typer.Option(help="Judgments of its topics in TREC form.")],
    attempt: Annotated[
        list[str] | None, typer.Option("--try", help="KEY=[VALUE, ...] to try; may be repeated.", show_default="a grid")
    ] = None,
    set: Annotated[list[str] | None, typer.Option(help="KEY=VALUE laid over the file; may be repeated.")] = None,
    measure: Annotated[
        list[str] | None, typer.Option("--measure", "-m", help="The first one chooses.", show_default="nDCG@10, R@100")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts of the topics for cross-validation.")] = 5,
    skip_own: Annotated[bool, typer.Option(help="Leave out a document with its topic's id, as BEIR does.")] = False,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Find settings by cross-validation over judged topics; the run's own are kept unless they are beaten.

    Example: keystone tune run.yaml --qrels qrels.txt --try 'fusion.k_narrative=[10, 60]'
    """
    from runs.cli.outputs import check_run
    from runs.config.read import read_config
    from runs.evaluation.measures import parse_measure
    from runs.evaluation.tune import Trials
    from runs.evaluation.tune import tune as tuned
    from runs.report.terminal import print_cautions, print_tuning, progress_bars

    check_run(read_config(config, set), [config, qrels], {})
    measures = [parse_measure(name) for name in measure or ("nDCG@10", "R@100")]
    with progress_bars(quiet) as progress:
        trials = Trials(qrels, measures, attempt, folds, skip_own)
        found = tuned(config, set or [], trials, threads, progress)
    print_tuning(found)
    print_cautions([found.configured], quiet)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where everything goes.")] = Path("demo-out"),
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """The main job on real text: Python's own documentation, 12 narratives, two runs, their scores.

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
        str | None, typer.Option(help="Look at this cluster instead, URL[,URL...], or at an index in it, URL/NAME.")
    ] = None,
) -> None:
    """Say what this machine has of what a run needs, or a cluster; exit code 1 if something is missing.

    Example: keystone doctor
    """
    from runs.doctor.cluster import examine_cluster
    from runs.doctor.machine import examine

    problems = 0
    for finding in examine_cluster(opensearch) if opensearch else examine():
        say(f"{finding.state:8} {finding.subject}: {finding.message}")
        problems += finding.state == "problem"
    if problems:
        raise typer.Exit(1)


@cache
def tell_interrupt() -> None:
    """Say once what is left of the command that was interrupted."""
    command = next(iter(sys.argv[1:]), "")
    say(f"interrupted: {KEPT.get(command, f'nothing was written; {ANEW}')}", err=True)


def main() -> None:
    """Run the command line; an error that a user can cause is one message, not a traceback."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        with interrupts_end_the_process(GRACE, tell_interrupt):
            app()
    except UserError as error:
        say(f"{error}" if error.waits else f"error: {error}", err=True)
        sys.exit(3 if error.waits else 1)
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        where = error.filename or "standard output, or the folder of temporary files"
        say(f"error: {where}: cannot be written: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the rest, which would be refused at the end once more
        sys.exit(1)
    except SystemExit as error:
        if error.code == INTERRUPTED:
            tell_interrupt()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)  # at once: threads that still compute are not waited for
        raise


if __name__ == "__main__":
    main()
