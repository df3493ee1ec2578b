"""Many searches and answers in one process: its mappings, files and memory stay as they are, with both Lucenes.

`KEYSTONE_SOAK_ROUNDS=100` makes 20,000 searches and 5,000 answers over each way; the number is 1 by default.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from keystone.indexing.lucene.java import find_anserini_jar
from tests.support import programs
from tests.support.indexes.lucene_indexes import find_older_jars
from tests.support.indexes.small_corpus import NARRATIVES, write_corpus
from tests.support.places import ROOT
from tests.support.servers.keystone_server import keystone_server

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(7200)]

ROUNDS = int(os.environ.get("KEYSTONE_SOAK_ROUNDS", "1"))
SEARCHES, ANSWERS = 200 * ROUNDS, 50 * ROUNDS
WARM = 20
"""The searches and answers before the first measurement: Java loads classes, and C keeps memory for each thread."""
MOST_MAPPINGS, MOST_FILES, MOST_BYTES = 150, 10, 80 * 2**20
"""How much more a process may hold after all work. A search that left its reader open would add 8 mappings."""
BY_PYTHON = f"""
import sys
import keystone
index = keystone.open_index(sys.argv[1])
topics = [keystone.Topic("1", {NARRATIVES["1"]!r})]
config = keystone.configure(retrieval={{"systems": ["bm25"]}})
queries = keystone.decompose(index, topics, config)
for line in sys.stdin:
    for _ in range(int(line)):
        assert keystone.search(index, queries, config)["bm25"].list_hits()
    for _ in range(int(line) // 4):
        assert keystone.answer(index, topics, config)[0].sentences
    print(flush=True)
"""


class Held(NamedTuple):
    mappings: int
    files: int
    bytes: int


def measure(process: int) -> Held:
    """What a process holds."""
    place = Path(f"/proc/{process}")
    pages = int((place / "statm").read_text().split()[1])
    return Held(len((place / "maps").read_text().splitlines()), len(list((place / "fd").iterdir())), pages * 4096)


def check(process: int, work: Callable[[int, int], None]) -> None:
    """Warm up, measure, do the work, and measure again."""
    work(WARM, WARM)
    before = measure(process)
    work(SEARCHES, ANSWERS)
    after = measure(process)
    print(f"{SEARCHES} searches, {ANSWERS} answers: {before} -> {after}")
    assert after.mappings <= before.mappings + MOST_MAPPINGS
    assert after.files <= before.files + MOST_FILES
    assert after.bytes <= before.bytes + MOST_BYTES


@pytest.fixture(params=["installed", "older"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of each version of Lucene, which is that of the processes that a test starts."""
    jars = find_older_jars() if request.param == "older" else find_anserini_jar().parent
    monkeypatch.setenv("ANSERINI_CLASSPATH", str(jars))
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    command: list[programs.Argument] = [
        sys.executable,
        "-m",
        "keystone.runs.cli.main",
        "index",
        corpus,
        "--out",
        tmp_path / "index",
    ]
    programs.run(command, cwd=ROOT, check=True, capture_output=True)
    return tmp_path / "index"


def test_python_calls_leave_nothing_behind(folder: Path) -> None:
    command: list[programs.Argument] = [sys.executable, "-c", BY_PYTHON, folder]
    with programs.started(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def work(searches: int, _answers: int) -> None:
            process.stdin.write(b"%d\n" % searches)  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            assert process.stdout.readline() == b"\n"  # type: ignore[union-attr]

        check(process.pid, work)


def test_requests_to_rest_leave_nothing_behind(folder: Path, tmp_path: Path) -> None:
    with keystone_server(folder, tmp_path) as served:
        connection = HTTPConnection("127.0.0.1", served.port, timeout=60)

        def ask(method: str, target: str, body: bytes | None = None) -> Any:
            connection.request(method, target, body, {"Content-Type": "application/json", "Accept": "application/json"})
            reply = connection.getresponse()
            content = reply.read()
            assert reply.status == 200, content
            return orjson.loads(content)

        def work(searches: int, answers: int) -> None:
            for number in range(searches):
                assert ask("GET", f"/v1/{folder.name}/search?query=honey+{number}&hits=3")["candidates"]
            for number in range(answers):
                narrative = orjson.dumps({"narrative": f"{NARRATIVES['1']} Part {number}."})
                assert ask("POST", "/v1/answers", narrative)

        check(served.process.pid, work)


def test_agents_over_mcp_leave_nothing_behind(folder: Path, tmp_path: Path) -> None:
    with keystone_server(folder, tmp_path) as served:

        async def call(searches: int, answers: int) -> None:
            async with Client(streamable_http_client(f"{served.url}/mcp")) as client:
                for number in range(searches):
                    assert not (await client.call_tool("search", {"query": f"honey {number}", "k": 2})).is_error
                for number in range(answers):
                    narrative = f"{NARRATIVES['1']} Part {number}."
                    assert not (await client.call_tool("answer", {"narrative": narrative})).is_error

        check(served.process.pid, lambda searches, answers: asyncio.run(call(searches, answers)))
