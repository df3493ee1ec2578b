"""The demo of a research agent: it researches one narrative by recorded replies, and shows its path and its answer."""

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from rich.console import Console

from keystone.generation.types import Answer, Sentence
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.types import Progress
from keystone.retrieval.backends import open_store
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.demo.main import DEPTH, MODEL, TOLD_TOPIC_ID, TRACK, make_index
from keystone.runs.pipeline.file_names import ANSWERS, QUERIES
from keystone.runs.pipeline.run import run
from keystone.runs.report.asked import list_quotes, print_answer
from keystone.runs.report.passages import Result, number_citations
from keystone.runs.report.say import say
from keystone.runs.report.story import fill_lines
from keystone.runs.report.trace import format_trace, read_trace

PRESET = "agent-light"


def run_agent_demo(out: Path, threads: int, progress: Progress) -> Callable[[], None]:
    """Make the demo's index in `out` unless it exists, and let the agent research one narrative.

    Returns a function that prints its path and its answer. `NotRecorded` if a request has no recorded reply.
    `UserError` if `out` cannot be written, or if the corpus cannot be fetched.
    """
    index = make_index(out, threads, progress)
    topics = out / "agent-topics.jsonl"
    with as_file(files("keystone.runs.demo") / "narratives.jsonl") as path:
        narrative = _find_record(path, "id")
    write_json_lines(topics, [narrative])
    with as_file(files("keystone.runs.demo") / "agent.replies.jsonl.zst") as replies:
        folder = run(configure_run(index.folder, topics, replies, out / "runs"), threads, progress)
    queries, answered = (_find_record(folder / name, "topic_id") for name in (QUERIES, ANSWERS))
    answer = Answer(TOLD_TOPIC_ID, tuple(Sentence(s["text"], tuple(s["citations"])) for s in answered["sentences"]))
    store = open_store(index)
    sentences, passages = number_citations(answer, store)
    result = Result("demo", str(index.folder), narrative["narrative"], passages, sentences)
    quotes, steps = list_quotes(answer, result, store), read_trace(folder)

    def report() -> None:
        say("\n".join([f"Narrative {TOLD_TOPIC_ID}:", "", *fill_lines(narrative["narrative"]), "", "Queries:"]))
        say("\n".join(_list_questions(queries)))
        say("\nThe agent's path:\n")
        for line in format_trace(steps, brief=True):
            say(line)
        say("\nAnswer:\n")
        print_answer(Console(highlight=False), result, quotes)
        say(f"\nThe run: {folder}\nEach step with all that the agent was shown: keystone trace {folder}")

    return report


def configure_run(index: Path, topics: Path, replies: Path, out: Path) -> RunConfig:
    """Configure the agent's run. The recorded replies belong to these settings."""
    settings = {
        "run_id": "agent",
        "index": str(index),
        "topics": str(topics),
        "out": str(out),
        "team_id": "demo",
        "track": TRACK,
        "fusion.depth": DEPTH,
        "model": {"backend": "replay", "name": MODEL, "replies": str(replies)},
    }
    overrides = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    return read_config(None, overrides, preset=PRESET)


def _list_questions(understood: Mapping[str, Any]) -> Iterator[str]:
    for query in understood["queries"]:
        if query["id"] != TOLD_TOPIC_ID:
            yield from fill_lines(query["question"], f"  {query['id']}  ")


def _find_record(path: Path, key: str) -> dict[str, Any]:
    return next(record for _, record in read_json_lines(path) if record[key] == TOLD_TOPIC_ID)
