"""Runs with a model behind an endpoint: their command line, and the files that they make."""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import orjson

from keystone.indexing.index import Index
from keystone.retrieval.types import Topic
from keystone.runs.pipeline.file_names import USAGE_FILE
from keystone.runs.tracks.validate import detect_track, validate
from tests.support.indexes.small_corpus import TRIAL_WARNINGS
from tests.support.processes import run_with_kills
from tests.support.servers.chat import Server


def list_submissions(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if "_output_trec_rag_" in path.name)


def check_submissions(directory: Path, topics: Sequence[Topic]) -> None:
    """Check that the files to submit break no rule of their tracks but those that every trial breaks."""
    for path in list_submissions(directory):
        assert {violation.kind for violation in validate(path, detect_track(path), topics)} <= TRIAL_WARNINGS


def read_run_content(directory: Path) -> dict[str, bytes]:
    """Read the files of a run, without its configuration, its manifest and its usage."""
    left_out = {"config.yaml", "manifest.json", USAGE_FILE}
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name not in left_out}


def answer_command(index: Index, folder: Path, server: Server, name: str = "answer") -> list[str]:
    """The command line that answers topics, or makes the run of those in the folder, by our own preset."""
    model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
    topics = ["--topics", str(folder / "topics.jsonl")] if name == "run" else []
    settings = ["--set", model, "--set", f"out={folder / 'out'}", "--index", str(index.folder)]
    return [name, "--preset", "keystone", "--quiet", *settings, *topics]


def kill_run(made: Path, *arguments: str | Path, times: int, kills: int, server: Server | None = None) -> None:
    """Kill the command that makes a run as `run_with_kills` does. Each whole run has the same bytes.

    If it asks a server that counts, a kill loses at most the replies that are on their way: two.
    """
    whole: dict[str, bytes] = {}
    repeated: list[int] = []

    def done() -> None:
        whole.update(whole or read_run_content(made))
        assert read_run_content(made) == whole
        if server is not None:
            paid = Counter(map(orjson.dumps, server.answered))
            repeated.append(paid.total() - len(paid))
            server.answered.clear()
        shutil.rmtree(made.parent)

    run_with_kills(*arguments, times=times, kills=kills, done=done)
    assert sum(repeated) <= 2 * times
