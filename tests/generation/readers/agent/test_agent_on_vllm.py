"""The agent on a real vLLM with the tiny model, whose words have no meaning: it ends within its limits, files valid."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from keystone.indexing.index import Index
from keystone.runs.trec.topics import read_topics
from tests.support.runs.command_line import keystone
from tests.support.runs.model_runs import check_submissions
from tests.support.servers.vllm import CHAT_OPTIONS, TINY_MODEL, Server, started

pytestmark = pytest.mark.slow

CALLS = 8


@pytest.fixture(scope="module")
def calling() -> Iterator[Server]:
    """The tiny model on a vLLM that takes tool calls. Its backend `guidance` refuses the grammars of calls."""
    options = [
        *CHAT_OPTIONS[:-1],
        '{"backend":"xgrammar"}',
        "--enable-auto-tool-choice",
        "--tool-call-parser",
        "hermes",
    ]
    with started("tiny", TINY_MODEL, options) as server:
        yield server


def research(server: Server, index: Index, topics: Path, folder: Path) -> tuple[int, list[str]]:
    """Run the agent; returns the calls of its steps, and the notes about the server."""
    settings = {
        "model": f"{{name: tiny, urls: ['{server.url}'], window: 16000}}", "out": folder / "out",
        "run_id": "tiny", "index": index.folder, "topics": topics,
        "reader": f"{{name: agent, steps: 2, rounds: 2, calls: {CALLS}}}",
        "answer.method": "claims", "answer.words": "100",
    }  # fmt: skip
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    made = keystone("run", "--quiet", *arguments)
    assert made.returncode == 0, made.stderr
    directory = next((folder / "out").glob("*/usage.json")).parent
    check_submissions(directory, read_topics(topics))
    usage = orjson.loads((directory / "usage.json").read_bytes())
    evidence = [orjson.loads(line) for line in (directory / "evidence.jsonl").read_bytes().splitlines()]
    assert all(one["items"] for one in evidence)
    trace = (directory / "trace.jsonl").read_text()
    assert trace.count('"action":"end: ') == len(evidence), "each narrative's trace ends with a reason"
    purposes = usage["purposes"]
    assert sum(purposes[name]["calls"] for name in ("agent", "agent_judge") if name in purposes) <= CALLS * len(
        evidence
    )
    return int(purposes["agent"]["calls"]), usage.get("notes", [])


def test_a_server_without_tool_calls_is_asked_for_json(
    chat: Server, index: Index, topics: Path, tmp_path: Path
) -> None:
    calls, notes = research(chat, index, topics, tmp_path)
    assert calls
    assert not any("schema" in note for note in notes)


@pytest.mark.nightly  # with a server of its own; test_tool_calls.py has the agent on servers that take tool calls
def test_a_server_with_a_parser_is_asked_for_tool_calls(
    calling: Server, index: Index, topics: Path, tmp_path: Path
) -> None:
    calls, notes = research(calling, index, topics, tmp_path)
    assert calls
    assert not any("tool calls" in note for note in notes)
