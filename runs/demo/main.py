"""The demo: it makes the corpus and its index, then three runs, compares them, and shows them."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import NotRecorded, UserError
from keystone.indexing.types import Progress
from keystone.retrieval.backends import open_store
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.evaluate import evaluate
from keystone.runs.pipeline import stages
from keystone.runs.pipeline.file_names import find_last_ranking
from keystone.runs.report.html.write import write_report
from keystone.runs.report.say import say
from keystone.runs.report.story import format_story, read_story
from keystone.runs.report.terminal import print_evaluations
from keystone.runs.tracks import validate
from keystone.runs.tracks.rules import TRACKS
from keystone.runs.trec.run_files import read_qrels, read_run
from keystone.runs.trec.topics import read_topics
from keystone.runs.wording import plural

TRACK = "rag25"
MODEL = "reader-1"
"""The name under which the replies in `replies.jsonl.zst` were recorded."""
TOLD_TOPIC_ID = "8"
"""The narrative that the demo tells in the terminal."""
MODEL_RUN = "keystone"
RUNS_TEXT = """\
narrative: the whole narrative as one query
rules:     decomposition by rules, and two-stage fusion
keystone:  queries, grades, order and answers by a language model, from recorded replies
"""
CAUTION_TEXT = """\
A model made the judgments of the demo, and a model of the same kind graded
the documents of keystone. So its row is no evidence of effect: it shows that
each step works."""
MISSING_TEXT = """\
The run keystone is left out: its replies were recorded for the documentation
of CPython 3.11, and one of the requests here has no reply."""


def run_demo(out: Path, threads: int, progress: Progress) -> Callable[[], None]:
    """Make all files of the demo in `out`, except those that exist already. Returns a function that prints the report.

    If a request has no recorded reply, the demo has no run by the model. `UserError` if `out` cannot be written.
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
    folders, missing = [], ""
    with ExitStack() as stack:
        topics, qrels_path, replies = (
            stack.enter_context(as_file(files("keystone.runs.demo") / name))
            for name in ("narratives.jsonl", "qrels.txt", "replies.jsonl.zst")
        )
        for config in configure_runs(index.folder, topics, replies, out / "runs"):
            try:
                folders.append(stages.run(config, threads, progress))
            except NotRecorded as error:
                missing = str(error)
        qrels, narratives = read_qrels(qrels_path), read_topics(topics)
        page = out / "report.html"
        with progress("Writing the report", None):
            write_report(folders, page, qrels_path, [] if missing else [" ".join(CAUTION_TEXT.split())])
    with progress("Measuring", None):
        evaluations = [evaluate(folder.name, read_run(find_last_ranking(folder)), qrels) for folder in folders]
    track = TRACKS[TRACK]
    submissions = [folder / file for folder in folders[1:] for file in (track.retrieval_file, track.answer_file)]
    violations = {path: validate.validate(path, track, narratives) for path in submissions}
    story = None if missing else read_story(folders[-1], TOLD_TOPIC_ID, open_store(index))

    def report() -> None:
        say(f"Corpus: {index.documents} pages of Python's documentation; {len(narratives)} narratives.")
        say(RUNS_TEXT)
        print_evaluations(evaluations)
        say(f"\n{MISSING_TEXT}\n({missing})" if missing else f"\n{CAUTION_TEXT}")
        say(f"\nRuns, queries, evidence and answers: {', '.join(map(str, folders))}")
        for path, found in violations.items():
            errors = sum(violation.severity == "error" for violation in found)
            say(f"{path}: {'INVALID' if errors else 'valid'} for {TRACK}, {plural(len(found) - errors, 'warning')}")
        if story:
            say(f"\nNarrative {TOLD_TOPIC_ID} in {MODEL_RUN}:\n")
            say("\n".join(format_story(story)))
        say(f"\nOpen in a browser, to see the runs side by side: {page}")

    return report


def configure_runs(index: Path, topics: Path, replies: Path, out: Path) -> list[RunConfig]:
    """Configure the runs of the demo: the whole narrative, the default by rules, and `keystone` with recorded replies.

    The replies belong to this pool, and to queries without passages.
    """
    places = {"index": str(index), "topics": str(topics), "out": str(out)}
    model = {"backend": "replay", "name": MODEL, "replies": str(replies)}
    settings = {**places, "run_id": MODEL_RUN, "team_id": "demo", "track": TRACK, "grading.pool": 8, "model": model}
    settings["queries.passages"] = "none"
    overrides = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    return [
        RunConfig.model_validate(
            {**places, "run_id": "narrative", "track": "none", "queries": {"method": "narrative"}}
        ),
        RunConfig.model_validate({**places, "run_id": "rules", "team_id": "demo", "track": TRACK}),
        read_config(None, overrides, preset="keystone"),
    ]


def make_corpus(path: Path) -> None:
    """Render the corpus in a process of its own, because rendering imports each module that it describes.

    `UserError` with the last output of the process if it fails.
    """
    partial = path.with_name(f".{path.name}.partial")
    done = subprocess.run(
        [sys.executable, "-m", "keystone.runs.demo.corpus", str(partial)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise UserError(f"{path}: the documentation could not be rendered: {done.stderr[-500:]}")
    partial.replace(path)
