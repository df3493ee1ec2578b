"""(f) Calls of a model: a server of fixed latency and capacity, kept busy, beside the plain `openai` client."""

import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import ClassVar

import numpy as np
import orjson

from benchmarks.peak import read_peak_memory
from benchmarks.table import Row, compare_costs
from benchmarks.texts import read_passages
from keystone.fusion.blocks import make_blocks
from keystone.generation.context.topic import TopicContext
from keystone.generation.llm.ask import ask_all, run_together
from keystone.generation.llm.client import open_model
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.rerank.open import Candidates, Means, open_reranker
from keystone.generation.rerank.settings import RerankSettings
from keystone.generation.types import Reply, Request
from keystone.indexing.errors import UserError
from keystone.indexing.types import Document, Segment, Span
from keystone.retrieval.types import Query

CALLS, LATENCY_S, CAPACITY_CALLS = 20_000, 0.05, 128
PEER_CALLS, REPEATS = 3_000, 3
PENDING_CALLS, TOPICS = 100_000, 100
RERANKED_NARRATIVES, RERANKED_DOCUMENTS, RERANK_LATENCY_S = 100, 100, 1.0
PROMPT = "Grade from 0 to 3 how well the passage answers the query.\n\nPassage: {}\n\nQuery: what is number {}?"

_CONTENT = orjson.dumps({"grade": 2, "ranking": [*range(1, 21)]}).decode()
_REPLY = orjson.dumps(
    {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": _CONTENT}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 300, "completion_tokens": 5, "total_tokens": 305},
    }
)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_REPLY) + _REPLY


def rows() -> list[Row]:
    """The least time that the server needs, the processor time of a call, and memory while pairs are pending."""
    with _start_server(LATENCY_S, CAPACITY_CALLS) as url:
        turns = [(_run("ours", url, CALLS), _run("openai", url, PEER_CALLS)) for _ in range(REPEATS)]
    ours, peer = ({key: median(turn[i][key] for turn in turns) for key in turns[0][i]} for i in (0, 1))
    with _start_server(3600.0, CAPACITY_CALLS) as url:
        pending = _run("pending", url, PENDING_CALLS)
    with _start_server(RERANK_LATENCY_S, CAPACITY_CALLS) as url:
        reranked = _run("rerank", url, RERANKED_NARRATIVES)
    blocks = RERANKED_NARRATIVES * len(make_blocks(RERANKED_DOCUMENTS, RerankSettings().block))
    least = CALLS * LATENCY_S / CAPACITY_CALLS
    name = f"calls, {LATENCY_S * 1e3:g} ms and {CAPACITY_CALLS} at once"
    return [
        compare_costs(f"{CALLS:,} {name}: the server's own time", ours["wall"], least, 1 / 1.05, "processor time"),
        compare_costs(
            f"{name}: processor time a call: openai",
            ours["cpu"] / CALLS * 1e3,
            peer["cpu"] / PEER_CALLS * 1e3,
            4.0,
            "aiohttp's reading and writing; SQLite's commit of each reply",
            "ms",
        ),
        compare_costs(
            f"{name}: wall time a call: openai",
            ours["wall"] / CALLS * 1e3,
            peer["wall"] / PEER_CALLS * 1e3,
            None,
            "the plain client's processor time",
            "ms",
        ),
        compare_costs(
            f"{RERANKED_NARRATIVES} narratives of {RERANKED_DOCUMENTS} documents reranked in {blocks:,} blocks, "
            f"{RERANK_LATENCY_S:g} s and {CAPACITY_CALLS} at once: the server's own time",
            reranked["wall"],
            blocks * RERANK_LATENCY_S / CAPACITY_CALLS,
            1 / 1.05,
            "the first and the last calls, while fewer than the server can take are under way",
        ),
        compare_costs(f"{PENDING_CALLS:,} pending pairs: peak memory against 500 MB", pending["peak"] / 1e6, 500.0, 1.0,
               f"prompts of {pending['characters']:.0f} characters that the steps have written", "MB"),
    ]  # fmt: skip


class _FixedLatency(asyncio.Protocol):
    """Answers each request after the latency, `capacity` at the same time; others wait. It does no pipelining.

    A waiting request begins at the time when an earlier one was due. So nobody pays if the server is late itself.
    """

    waiting: ClassVar[deque[tuple["_FixedLatency", float]]] = deque()
    busy = 0
    latency = 0.0
    capacity = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.missing, self.head, self.due = transport, 0, b"", 0.0

    def data_received(self, data: bytes) -> None:
        if not self.missing:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            length = self.head.lower().index(b"content-length: ") + 16
            self.missing = int(self.head[length : self.head.index(b"\r", length)]) + end + 4
            data, self.head = self.head, b""
        self.missing -= len(data)
        if not self.missing:
            now = asyncio.get_running_loop().time()
            self.waiting.append((self, now))
            self.begin(now)

    @classmethod
    def begin(cls, free: float) -> None:
        while cls.waiting and cls.busy < cls.capacity:
            cls.busy += 1
            one, came = cls.waiting.popleft()
            one.due = max(came, free) + cls.latency
            asyncio.get_running_loop().call_at(one.due, one.answer)

    def answer(self) -> None:
        _FixedLatency.busy -= 1
        self.transport.write(_ANSWER)
        self.begin(self.due)


async def _serve(latency: float, capacity: int) -> None:
    _FixedLatency.latency, _FixedLatency.capacity = latency, capacity
    server = await asyncio.get_running_loop().create_server(_FixedLatency, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def _start_server(latency: float, capacity: int) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.calls", "serve", str(latency), str(capacity)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.terminate()


def _run(what: str, url: str, calls: int) -> dict[str, float]:
    """Run one of the clients in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.calls", what, url, str(calls)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = orjson.loads(done.stdout)
    return found


@cache
def _load_texts() -> list[str]:
    return read_passages(1_000)


def _make_requests(calls: int) -> Iterator[Request]:
    for number in range(calls):
        prompt = PROMPT.format(_load_texts()[number % len(_load_texts())], number)
        yield Request("umbrela", (("system", "You grade passages."), ("user", prompt)), 20)


async def _call_keystone(url: str, calls: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_model(ModelSettings(name="m", urls=[url]), Path(folder)) as model:
            answered = [reply async for _, reply in model.complete(_make_requests(calls))]
    assert len(answered) == calls
    assert all(isinstance(reply, Reply) for reply in answered)


async def _call_openai(url: str, calls: int) -> None:
    import openai

    room = asyncio.Semaphore(CAPACITY_CALLS)
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:

        async def one(request: Request) -> None:
            async with room:
                messages = [{"role": role, "content": content} for role, content in request.messages]
                await client.chat.completions.create(
                    model="m",
                    messages=messages,  # type: ignore[arg-type]
                    max_tokens=request.max_tokens,
                    temperature=0,
                )

        await asyncio.gather(*map(one, _make_requests(calls)))


async def _hold_pending(url: str, calls: int) -> None:
    """Ask for every topic's pairs at once; none is answered before the run's time is over."""
    with tempfile.TemporaryDirectory() as folder, suppress(UserError):
        settings = ModelSettings(name="m", urls=[url], run_seconds=20)
        async with open_model(settings, Path(folder)) as model:
            pairs = _make_requests(calls)

            async def topic() -> object:
                return await ask_all(model, [(next(pairs), str) for _ in range(calls // TOPICS)])

            await run_together([topic] * TOPICS, at_once=TOPICS)


async def _rerank(url: str, narratives: int) -> None:
    """Rank the same documents again for each narrative, block by block."""
    documents = {row: _make_document(row, text) for row, text in enumerate(_load_texts()[:RERANKED_DOCUMENTS])}
    ones = np.ones((1, 1), dtype=np.float32)
    settings = RerankSettings(method="listwise")
    with tempfile.TemporaryDirectory() as folder:
        async with (
            open_model(ModelSettings(name="m", urls=[url]), Path(folder)) as model,
            open_reranker(settings, Means(Path(folder), model, 32_768)) as rerank,
        ):

            async def rerank_one(number: int) -> None:
                query = Query(str(number), str(number), "", "", "")
                context = TopicContext(documents, dict.fromkeys(documents, ones), [query], ones)
                found = await rerank(Candidates(query.id, f"What is number {number}?", context))
                assert not found.fallbacks

            await run_together([partial(rerank_one, number) for number in range(narratives)])


def _make_document(row: int, text: str) -> Document:
    return Document(f"d{row}", text, segments=(Segment(f"d{row}#0", Span(f"d{row}", 0, len(text))),))


def main(what: str, first: str, second: str) -> None:
    """Be the server, or one of the clients."""
    if what == "serve":
        asyncio.run(_serve(float(first), int(second)))
        return
    client = {"ours": _call_keystone, "openai": _call_openai, "pending": _hold_pending, "rerank": _rerank}[what]
    if what != "pending":
        asyncio.run(client(first, 1))  # imports
    characters = sum(len(request.messages[1][1]) for request in _make_requests(1_000)) / 1_000
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    asyncio.run(client(first, int(second)))
    after = resource.getrusage(resource.RUSAGE_SELF)
    measured = {
        "wall": time.perf_counter() - start,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak": read_peak_memory(),
        "characters": characters,
    }
    print(orjson.dumps(measured).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
