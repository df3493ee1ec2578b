"""Runs with a model behind an endpoint: their command line, and the files that they make."""

from pathlib import Path

from keystone.indexing.index import Index
from keystone.runs.pipeline.model_runner import USAGE_FILE
from tests.support.servers.chat import Server


def list_submissions(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if "_output_trec_rag_" in path.name)


def read_run_content(directory: Path) -> dict[str, bytes]:
    """Read the files of a run, without its configuration, its manifest and its usage."""
    left_out = {"config.yaml", "manifest.json", USAGE_FILE}
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name not in left_out}


def answer_command(index: Index, folder: Path, server: Server, name: str = "answer") -> list[str]:
    """The command line that answers the topics, or makes the run, by our own preset."""
    model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
    where = [f"out={folder / 'out'}", f"index={index.folder}", f"topics={folder / 'topics.jsonl'}"]
    settings = [part for value in (model, *where) for part in ("--set", value)]
    return [name, "--preset", "keystone", "--quiet", *settings]
