"""The command line: `keystone index | run | validate | evaluate | demo | doctor`.

Heavy packages are imported inside the commands that need them. Exit codes: 0 done, 1 an error or an invalid
submission, 2 wrong usage, and 130 as everywhere where it was interrupted.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indexing.errors import UserError

if TYPE_CHECKING:
    from runs.directory import Stage

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


@app.command()
def index(
    corpus: Annotated[Path, typer.Argument(help="JSONL (also .gz), or a folder of JSONL, text, Markdown or HTML.")],
    out: Annotated[Path, typer.Option(help="The index folder to make.")],
    format: Annotated[str | None, typer.Option(help="jsonl, segments or folder.", show_default="guessed")] = None,
    segments: Annotated[Path | None, typer.Option(help="MS MARCO V2.1 segments that cut the documents.")] = None,
    dense: Annotated[bool, typer.Option(help="Embed the documents for dense search.")] = True,
    embedding: Annotated[str, typer.Option(help="The embedding model.")] = "all-MiniLM-L6-v2",
    embedding_url: Annotated[
        str | None, typer.Option(help="Its OpenAI-compatible endpoint, such as http://localhost:8000/v1.")
    ] = None,
    embedding_window: Annotated[
        int | None, typer.Option(min=1, help="Tokens that it takes.", show_default="asked of the endpoint")
    ] = None,
    query_prefix: Annotated[str, typer.Option(help="Put before what is asked, as the model wants it.")] = "",
    passage_prefix: Annotated[str, typer.Option(help="Put before what is searched.")] = "",
    faiss: Annotated[str, typer.Option(help="The FAISS index: Flat, HNSW32, 'IVF256,Flat', ...")] = "Flat",
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Index a corpus: document store, BM25 index, embeddings. Stopped at any moment, the same command goes on.

    Example: keystone index corpus.jsonl.gz --out index
    """
    from indexing.build import build_index
    from indexing.embed import Embedding
    from runs.screen import progress_bars

    model = Embedding(embedding, embedding_url, embedding_window, query_prefix, passage_prefix) if dense else None
    with progress_bars(quiet) as progress:
        made, built = build_index(
            corpus,
            out,
            format=format,
            segments=segments,
            embedding=model,
            faiss=faiss,
            threads=threads,
            progress=progress,
        )
    if made.cut:
        typer.echo(
            f"{made.folder}: {made.cut} documents were longer than the model's window: embedded by their beginning"
        )
    typer.echo(f"{made.folder}: {made.documents} documents{'' if built else ', already indexed'}")


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="The YAML file that describes the run.")],
    set: Annotated[list[str] | None, typer.Option(help="KEY=VALUE laid over the file; may be repeated.")] = None,
    threads: Threads = CORES,
    quiet: Quiet = False,
) -> None:
    """Make a run, or finish an interrupted one: queries, rankings, answers, submission files.

    Example: keystone run run.yaml --set retrieval.depth=500
    """
    from runs.config import read_config

    settings = read_config(config, set)

    from runs import stages
    from runs.screen import progress_bars

    def announce(stage: "Stage", reused: bool) -> None:
        if not quiet:
            typer.echo(f"{stage.name}: {'kept' if reused else 'made'} {', '.join(stage.artifacts)}", err=True)

    with progress_bars(quiet) as progress:
        directory = stages.run(settings, threads, progress, announce)
    typer.echo(directory)


@app.command()
def validate(
    file: Annotated[Path, typer.Argument(help="A retrieval run or a JSONL answer file.")],
    topics: Annotated[Path, typer.Option(help="The track's topics.")],
    track: Annotated[str, typer.Option(help="The track whose rules apply.")] = "rag25",
) -> None:
    """Judge a submission file; exit code 1 if a rule is broken.

    Example: keystone validate out/my-run/rag_output_trec_rag_2025.jsonl --topics topics.jsonl
    """
    from runs import validate as rules
    from runs.topics import read_topics
    from runs.tracks import TRACKS

    if track not in TRACKS:
        raise UserError(f"--track {track}: unknown; expected one of {', '.join(sorted(TRACKS))}")
    violations = rules.validate(file, TRACKS[track], read_topics(topics))
    for violation in violations:
        place = f"{file}:{violation.line}" if violation.line else f"{file}"
        typer.echo(f"{place}: {violation.severity}: {violation.message}")
    errors = sum(violation.severity == "error" for violation in violations)
    typer.echo(
        f"{file}: {'invalid' if errors else 'valid'} for {track}: {errors} errors, {len(violations) - errors} warnings"
    )
    if errors:
        raise typer.Exit(1)


@app.command()
def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run files; the first is what the others are compared with.")],
    qrels: Annotated[Path, typer.Option(help="Judgments in TREC form.")],
    json: Annotated[Path | None, typer.Option(help="Write means, topics and p-values here.")] = None,
    quiet: Quiet = False,
) -> None:
    """Measure runs with ranx and compare them by a paired test.

    Example: keystone evaluate out/a/narrative.trec out/b/narrative.trec --qrels qrels.txt
    """
    import orjson

    from indexing.files import written
    from runs.evaluate import as_json, evaluate_files
    from runs.screen import print_evaluations, progress_bars

    with progress_bars(quiet) as progress, progress("Measuring", None):
        evaluations = evaluate_files(runs, qrels)
    print_evaluations(evaluations)
    if json:
        with written(json) as file:
            file.write(orjson.dumps(as_json(evaluations), option=orjson.OPT_INDENT_2))


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
    from runs.screen import progress_bars

    with progress_bars(quiet) as progress:
        report = run_demo(out, threads, progress)
    report()


@app.command()
def doctor() -> None:
    """Say what this machine has of what a run needs; exit code 1 if something is missing.

    Example: keystone doctor
    """
    from runs.doctor import examine

    problems = 0
    for finding in examine():
        typer.echo(f"{finding.state:8} {finding.subject}: {finding.message}")
        problems += finding.state == "problem"
    if problems:
        raise typer.Exit(1)


def main() -> None:
    """Run the command line; an error that a user can cause is one message, not a traceback."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        app()
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
