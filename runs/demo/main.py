"""The demo: it makes the corpus and its index, then the baseline run and the keystone run, and compares them."""

import subprocess
import sys
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

from indexing.builds.index import build_index
from indexing.builds.settings import BuildSettings
from indexing.errors import UserError
from indexing.types import Progress
from runs.config.run_config import Queries, RunConfig
from runs.evaluation.evaluate import evaluate
from runs.pipeline import stages
from runs.pipeline.artifacts import NARRATIVE
from runs.report.say import say
from runs.report.terminal import print_evaluations
from runs.tracks import validate
from runs.tracks.rules import TRACKS
from runs.trec.run_files import read_qrels, read_run
from runs.trec.topics import read_topics
from runs.wording import plural

TRACK = "rag25"


def run_demo(out: Path, threads: int, progress: Progress) -> Callable[[], None]:
    """Make all files of the demo in `out`, except those that exist already. Returns a function that prints the report.

    `UserError` if `out` cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}") from error
    corpus = out / "corpus.jsonl"
    if not corpus.exists():
        with progress("Rendering Python's documentation", None):
            make_corpus(corpus)
    index, _ = build_index(corpus, out / "index", BuildSettings(threads=threads), progress)
    here = files("runs.demo")
    with as_file(here / "narratives.jsonl") as topics, as_file(here / "qrels.txt") as qrels_path:
        runs = [
            RunConfig(
                run_id="narrative",
                index=index.folder,
                topics=topics,
                out=out / "runs",
                track="none",
                queries=Queries(method="narrative"),
            ),
            RunConfig(
                run_id="keystone", team_id="demo", index=index.folder, topics=topics, out=out / "runs", track=TRACK
            ),
        ]
        folders = [stages.run(run, threads, progress) for run in runs]
        qrels, narratives = read_qrels(qrels_path), read_topics(topics)
    with progress("Measuring", None):
        evaluations = [evaluate(folder.name, read_run(folder / NARRATIVE), qrels) for folder in folders]
    track = TRACKS[TRACK]
    submissions = [folders[1] / track.retrieval_file, folders[1] / track.answer_file]
    violations = {path: validate.validate(path, track, narratives) for path in submissions}

    def report() -> None:
        say(f"Corpus: {index.documents} pages of Python's documentation; {len(narratives)} narratives.")
        say(
            "Whole narrative as one query (narrative) beside decomposition by rules with two-stage fusion (keystone):\n"
        )
        print_evaluations(evaluations)
        say(f"\nRuns, queries, evidence and answers: {folders[0]}, {folders[1]}")
        for path, found in violations.items():
            errors = sum(violation.severity == "error" for violation in found)
            say(f"{path}: {'INVALID' if errors else 'valid'} for {TRACK}, {plural(len(found) - errors, 'warning')}")

    return report


def make_corpus(path: Path) -> None:
    """Render the corpus in a process of its own, because rendering imports each module that it describes.

    `UserError` with the last output of the process if it fails.
    """
    partial = path.with_name(f".{path.name}.partial")
    done = subprocess.run(
        [sys.executable, "-m", "runs.demo.corpus", str(partial)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise UserError(f"{path}: the documentation could not be rendered: {done.stderr[-500:]}")
    partial.replace(path)
