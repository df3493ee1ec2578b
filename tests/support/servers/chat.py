"""A real HTTP server with `/v1/chat/completions` on a socket, in its own thread, with faults by script."""

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import Thread
from typing import Any

from tests.support.models.hostile_bodies import ESCAPES
from tests.support.servers.ports import free_port
from tests.support.waiting import LIMIT_S, join

Said = str | dict[str, Any]
Fault = Callable[["Exchange"], Awaitable[bool]]
"""Answers a request itself and returns True, or returns False so that the server answers."""


def echo(body: dict[str, Any]) -> Said:
    """A model without weights: it repeats the last message."""
    return str(body["messages"][-1]["content"])


@dataclass
class Server:
    """The settings and records of the server. Each request takes one of the `faults`; later answers are right."""

    model: Callable[[dict[str, Any]], Said] = echo
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    latency: float = 0.0
    port: int = field(default_factory=free_port)
    requests: list[dict[str, Any]] = field(default_factory=list)
    answered: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    at_once: int = 0
    most_at_once: int = 0
    url: str = ""
    sent: int = 0
    """Bytes of endless bodies that clients have taken."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def start(self) -> None:
        """Listen, at the same port as before."""
        self._run(self._start())

    def stop(self) -> None:
        """Refuse connections and break off open ones, like a killed server."""
        self._run(self._stop())

    def _run(self, work: Any) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.result(LIMIT_S)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", self.port, backlog=1024)
        self.url = f"http://127.0.0.1:{self.port}/v1"

    async def _stop(self) -> None:
        if self._server:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if task.cancelled() else writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        self.requests.append(body)
        self.keys.add(headers.get("authorization"))
        exchange = Exchange(self, writer, head[0].split()[1], body, headers)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            fault = self.faults.pop(0) if self.faults else self.always
            if not (fault and await fault(exchange)):
                self.answered.append(body)
                exchange.reply_by_model()
            await writer.drain()
        finally:
            self.at_once -= 1
        return exchange.keep


@dataclass
class Exchange:
    """One request and its answer."""

    server: Server
    writer: asyncio.StreamWriter
    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    keep: bool = True

    def completion(self) -> dict[str, Any]:
        said = self.server.model(self.body)
        choice = {"index": 0, "finish_reason": "stop"} | (
            {"message": {"role": "assistant", "content": said}} if isinstance(said, str) else said
        )
        usage = {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
        return {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}

    def response(self) -> dict[str, Any]:
        """The completion in the form of OpenAI's Responses API, after a thought."""
        said = self.server.model(self.body)
        text: dict[str, Any] = {"type": "output_text", "text": said, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
        usage = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": 13,
        }
        made = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
        made |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage}
        return made | {"output": [{"type": "reasoning", "id": "rs_1", "summary": []}, message]}

    def reply_by_model(self) -> None:
        """Reply as the model says. A model that raises is a mistake of the test, which a retry cannot mend."""
        try:
            self.reply(self.completion())
        except Exception as error:
            self.reply({"error": {"message": f"the model of the test raised {error!r}"}}, 400)

    def reply(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send(value if isinstance(value, bytes) else json.dumps(value).encode(), status, headers)

    def send(
        self, body: bytes, status: int = 200, headers: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        named = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body) if length is None else length),
            **(headers or {}),
        }
        head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {v}" for name, v in named.items())]
        self.writer.write("\r\n".join([*head, "", ""]).encode() + body)


@contextmanager
def serving(**settings: Any) -> Iterator[Server]:
    server = Server(**settings)
    thread = Thread(target=server._loop.run_forever, daemon=True)
    thread.start()
    server.start()
    try:
        yield server
    finally:
        server.stop()
        server._loop.call_soon_threadsafe(server._loop.stop)
        join(thread, "the server to end")
        server._loop.close()


def status(code: int, said: Any = None, **headers: str) -> Fault:
    """An error, by default in OpenAI's form."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def fault(exchange: Exchange) -> bool:
        exchange.reply({"error": {"message": "fault"}} if said is None else said, code, named)
        return True

    return fault


def says(value: Any) -> Fault:
    """Status 200 with any body."""

    async def fault(exchange: Exchange) -> bool:
        exchange.reply(value)
        return True

    return fault


def changed(**changes: Any) -> Fault:
    """The right answer with other fields in its choice."""

    async def fault(exchange: Exchange) -> bool:
        value = exchange.completion()
        value["choices"][0] |= changes
        exchange.reply(value)
        return True

    return fault


async def hang(_: Exchange) -> bool:
    """Takes much longer than any client waits."""
    await asyncio.sleep(30)
    return False


async def half(exchange: Exchange) -> bool:
    """Promises a whole answer, sends half of it, and hangs up."""
    body = json.dumps(exchange.completion()).encode()
    exchange.send(body[: len(body) // 2], length=len(body))
    exchange.keep = False
    return True


async def torn(exchange: Exchange) -> bool:
    """Sends half of an answer with the length of the half."""
    body = json.dumps(exchange.completion()).encode()
    exchange.send(body[: len(body) // 2])
    return True


async def hangs_up(exchange: Exchange) -> bool:
    """Closes the connection without an answer."""
    exchange.keep = False
    return True


async def trickle(exchange: Exchange) -> bool:
    """Sends the right answer byte by byte."""
    body = json.dumps(exchange.completion()).encode()
    exchange.send(b"", length=len(body))
    for byte in body[:-1]:
        exchange.writer.write(bytes([byte]))
        await asyncio.sleep(0.0005)
    exchange.server.answered.append(exchange.body)
    exchange.writer.write(body[-1:])
    return True


async def endless_trickle(exchange: Exchange) -> bool:
    """Sends blanks, one at a time, and never an answer."""
    exchange.send(b"", length=10_000)
    for _ in range(10_000):
        exchange.writer.write(b" ")
        await asyncio.sleep(0.01)
    return True


async def repeats_key(exchange: Exchange) -> bool:
    """Repeats the received key in its answer."""
    said = f"no access with {exchange.headers.get('authorization')}"
    exchange.reply({"error": {"message": said}}, 401)
    return True


def in_turn(*faults: Fault | None) -> Fault:
    """The faults in turn, again and again."""
    return _turns(faults)


def _turns(faults: Sequence[Fault | None]) -> Fault:
    calls = iter(range(10**9))

    async def fault(exchange: Exchange) -> bool:
        chosen = faults[next(calls) % len(faults)]
        return bool(chosen and await chosen(exchange))

    return fault


def says_text(text: str | Callable[[Exchange], str]) -> Fault:
    """The right answer with another text in it."""

    async def fault(exchange: Exchange) -> bool:
        said = text if isinstance(text, str) else text(exchange)
        return await changed(message={"role": "assistant", "content": said})(exchange)

    return fault


def pours(block: bytes, times: int, code: int = 200, **headers: str) -> Fault:
    """A body of `times` blocks, as long as the client takes them."""

    async def fault(exchange: Exchange) -> bool:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        exchange.keep = False
        exchange.send(b"", code, named, length=len(block) * times)
        for _ in range(times):
            exchange.writer.write(block)
            await exchange.writer.drain()
            exchange.server.sent += len(block)
        return True

    return fault


def bomb(code: int = 200) -> Fault:
    """A gzip body of 2 MiB that unpacks to 2 GiB of blanks."""
    packing = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    blanks = b" " * 2**24
    first, further = (packing.compress(blanks) + packing.flush(zlib.Z_FULL_FLUSH) for _ in range(2))

    async def fault(exchange: Exchange) -> bool:
        exchange.send(first + 127 * further, code, {"Content-Encoding": "gzip"})
        return True

    return fault


def escaped_key(exchange: Exchange) -> str:
    """A reply that fits any step and holds the key, each of whose characters JSON escapes."""
    key = (exchange.headers.get("authorization") or "").removeprefix("Bearer ")
    written = "".join(f"\\u{ord(character):04x}" for character in key)
    citing = f'[{{"id": 0, "text": "It is {written}.", "citations": [0]}}]'
    return (
        f'{{"questions": ["Who has {written}?"], "topic": "{written}", "variants": ["{written} kind"], '
        f'"answer": {citing}, "sentences": {citing}}}'
    )


HOSTILE: dict[str, Fault] = {
    "gzip bomb": bomb(),
    "gzip bomb in an error": bomb(503),
    "endless body": pours(b" " * 2**16, 2**40),
    "huge body": pours(b"[0,0,0,0]," * 6_554, 2**14),
    "endless packed body": pours(b"\x1f\x8b\x08" + b"\0" * 2**16, 2**40, Content_Encoding="gzip"),
    "no gzip": pours(b"no gzip", 1, Content_Encoding="gzip"),
    "another encoding": pours(b"x", 1, Content_Encoding="br\x1b[2J"),
    "nested 300 deep": says({"choices": json.loads("[" * 300 + "]" * 300)}),
    "nested 1,000 deep": says(b'{"error": ' + b"[" * 1_000 + b"]" * 1_000 + b"}"),
    "an error nested 1,000 deep": status(500, b"[" * 1_000 + b"]" * 1_000),
    "key doubly escaped": says_text(escaped_key),
    "Retry-After in an absurd zone": status(429, None, Retry_After="Sat, 21 Nov 2026 10:00:30 +99999999999999"),
    "Retry-After of ages": status(429, None, Retry_After="1e300"),
    "control bytes": status(400, {"error": {"message": ESCAPES}}),
    "control bytes without JSON": status(500, ESCAPES.encode()),
    "a flood of lists": says_text("[0," * 40_000),
    "a flood of long lists": says_text("[0," * 900 + "0," * 50_000),
}
"""Faults of a server that is malicious or badly broken, beside the bodies of `hostile_bodies.py`."""
