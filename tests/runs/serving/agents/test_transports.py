"""Both transports with a real client: `keystone serve --stdio` in a process of its own, and streamable HTTP."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from threading import Thread
from typing import Any

import httpx2
import orjson
import pytest
import uvicorn
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

from keystone.indexing.index import Index
from keystone.runs.cli.commands.serve_command import replay
from keystone.runs.serving.app import make_app
from keystone.runs.serving.served import Served
from keystone.runs.serving.server.guard import Guard
from keystone.runs.serving.service import Service
from tests.support import programs
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES
from tests.support.places import ROOT
from tests.support.servers.ports import free_port
from tests.support.waiting import LIMIT_S, join, wait_until

pytestmark = pytest.mark.slow

TOKEN = "a-token"
CLIENTS_AT_ONCE = 64
MOST_GROWTH = 1.05
"""How much more memory a second crowd of clients may take."""
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool that must not fail; returns its reply as a value."""
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert not result.is_error, content.text
    return orjson.loads(content.text)


async def search_read_and_answer(client: Client) -> None:
    """Do the work of an agent: split the question, search for each part, read the best segments, and answer."""
    for query in (await call(client, "decompose", narrative=NARRATIVES["1"]))["queries"]:
        best = (await call(client, "search", query=query["text"], k=2))["results"][0]
        read = await call(client, "fetch_segment", id=best["segment"])
        assert read["text"] == best["text"]
    document = await call(client, "fetch_document", id=best["document"])
    assert document["text"] == CORPUS[best["document"]][1]
    assert (await call(client, "answer", narrative=NARRATIVES["1"]))["sentences"]
    assert (await client.call_tool("fetch_segment", {"id": "moon"})).is_error


def test_all_calls_of_a_file_are_answered_before_stdio_closes(index: Index, tmp_path: Path) -> None:
    def make_call(number: int | str, tool: str, **arguments: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}

    calls = [
        make_call(2, "search", query="bees", k=2),
        make_call(3, "answer", narrative=NARRATIVES["1"]),
        make_call(3, "search", query="the same id again"),
        make_call("last", "answer", narrative=NARRATIVES["2"]),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "none"}},
        {"jsonrpc": "2.0", "id": 4, "method": "no/such"},
    ]
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    messages: list[dict[str, Any]] = [INITIALIZE, initialized, *calls]
    command = [sys.executable, "-m", "keystone.runs.cli.main", "serve", str(index.folder), "--stdio"]
    for sent in (messages, messages[:1], []):
        content = b"".join(orjson.dumps(message) + b"\n" for message in sent)
        done = programs.run(
            [*command, "--log", tmp_path / "calls.jsonl"], input=content, cwd=ROOT, capture_output=True, check=True
        )
        replies = [orjson.loads(line) for line in done.stdout.splitlines()]
        asked = [message["id"] for message in sent if "id" in message]
        assert sorted(str(reply["id"]) for reply in replies) == sorted(map(str, asked))
        assert {reply["id"] for reply in replies if "error" in reply} == {4} & set(asked)
        assert b"Connection closed" not in done.stdout


def test_a_session_over_stdio_is_logged_and_repeats_byte_for_byte(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "calls.jsonl"
    command = ["-m", "keystone.runs.cli.main", "serve", str(index.folder), "--stdio", "--log", str(log)]
    parameters = StdioServerParameters(command=sys.executable, args=command, cwd=ROOT, env=dict(os.environ))

    async def connect() -> None:
        async with asyncio.timeout(LIMIT_S), Client(stdio_client(parameters)) as client:
            await search_read_and_answer(client)

    asyncio.run(connect())
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    assert {line["index"] for line in lines} == {index.key}
    assert len({line["session"] for line in lines}) == 1
    assert [line["operation"] for line in lines][-3:] == ["fetch_document", "answer", "fetch_segment"]
    replay(log, index.folder)
    assert capsys.readouterr().out == f"{len(lines)} of {len(lines)} calls have replies of the same bytes\n"


@contextmanager
def serving(service: Service) -> Iterator[str]:
    """The service behind a token, in a thread; yields its address."""
    port = free_port()
    config = uvicorn.Config(make_app(Served(service), Guard(TOKEN)), port=port, log_level="error")
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, "the server")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        join(thread, "the end of the server")


@asynccontextmanager
async def connected(address: str, mode: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        asyncio.timeout(LIMIT_S),
        httpx2.AsyncClient(headers=headers, timeout=LIMIT_S) as http,
        Client(streamable_http_client(f"{address}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


async def ask_once(address: str, number: int) -> Any:
    async with connected(address, "legacy" if number % 2 else "auto") as client:
        return await call(client, "search", query=f"volcano {number}", k=1)


def test_streamable_http_serves_agents_of_both_generations_beside_rest_and_behind_the_token(
    service: Service, log_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(address: str) -> None:
        for mode in ("legacy", "auto"):
            async with connected(address, mode) as client:
                await search_read_and_answer(client)
        peaks = []
        for _ in range(2):
            found = await asyncio.gather(*(ask_once(address, number) for number in range(CLIENTS_AT_ONCE)))
            assert [reply["results"][0]["document"] for reply in found] == ["volcano"] * CLIENTS_AT_ONCE
            peaks.append(getrusage(RUSAGE_SELF).ru_maxrss)
        assert peaks[1] < peaks[0] * MOST_GROWTH
        async with httpx2.AsyncClient() as http:
            for ask in (http.get, http.post, http.delete):
                response = await ask(f"{address}/mcp")
                assert (response.status_code, list(response.json())) == (401, ["error"])
            http.headers["Authorization"] = f"Bearer {TOKEN}"
            assert (await http.get(f"{address}/mcp")).status_code == 405
            assert (await http.post(f"{address}/mcp", json={"method": 1})).status_code == 400
            http.headers["Accept"] = "application/json, text/event-stream"
            hello = await http.post(f"{address}/mcp", json=INITIALIZE)  # the library would break off a stream of events
            assert (hello.status_code, hello.headers["content-type"]) == (200, "application/json")
            for path in ("search?query=honey+bees&hits=3", "doc/bees", "segments/bees", "doc/moon"):
                await http.get(f"{address}/v1/{service.name}/{path}")

    before = log_file.read_bytes() if log_file.exists() else b""
    with serving(service) as address:
        asyncio.run(work(address))
    (log := tmp_path / "calls.jsonl").write_bytes(log_file.read_bytes().removeprefix(before))
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    assert [(one["front"], one["operation"], one["status"]) for one in lines[-4:]] == [
        ("rest", "search", 200), ("rest", "document", 200), ("rest", "segments", 200), ("rest", "document", 404),
    ]  # fmt: skip
    sessions = [line["session"] for line in lines]
    assert len(set(sessions)) == 2 + CLIENTS_AT_ONCE  # none, one agent, and half of each crowd
    assert all(sessions[: sessions.index("")])
    replay(log, service.index.folder)
    assert capsys.readouterr().out == f"{len(lines)} of {len(lines)} calls have replies of the same bytes\n"
