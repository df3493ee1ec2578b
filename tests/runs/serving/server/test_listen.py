"""Connections of a real socket: what is no request, what comes too slowly, and what arrives while the server stops."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import orjson
import pytest
import uvloop

from keystone.runs.serving.call_log import Reply
from keystone.runs.serving.server import guard, listen
from keystone.runs.serving.server.guard import Guard, GuardedApp
from keystone.runs.serving.server.json_replies import send_json
from keystone.runs.serving.server.listen import make_server, open_socket
from keystone.runs.serving.server.metrics import Metrics
from tests.support.waiting import LIMIT_S

Client = Callable[[int, Any], Awaitable[None]]


async def answer_slowly(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
        return
    if scope["path"] == "/large":
        await send_json(send, Reply(b"x" * 2**24))
        return
    await asyncio.sleep(0.2)
    await send_json(send, Reply(orjson.dumps({"path": scope["path"]})))


def serve(client: Client, app: Any = answer_slowly) -> None:
    """Run a client of (port, server) beside a server in this process."""

    async def run() -> None:
        started = asyncio.get_running_loop().create_future()
        server, bound = make_server(app, lambda: started.set_result(None)), open_socket("127.0.0.1", 0)
        serving = asyncio.create_task(server.serve([bound]))
        await asyncio.wait_for(started, LIMIT_S)
        try:
            await client(bound.getsockname()[1], server)
        finally:
            server.should_exit = True
            await serving

    uvloop.run(asyncio.wait_for(run(), LIMIT_S))


async def send_raw(port: int, *parts: bytes) -> tuple[int, dict[str, str]]:
    """Send parts of a request, one after the other; returns the status and the JSON of all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await asyncio.sleep(0.01)
    found = await reader.read()
    writer.close()
    head, _, body = found.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert b"connection: close" in head
    return int(head.split()[1]), orjson.loads(body)


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        pytest.param([b"hello\r\n\r\n"], 400, id="no HTTP"),
        pytest.param([b"\x16\x03\x01\x02\x00\x01\x00\x01"], 400, id="TLS"),
        pytest.param([b"GET / HTTP/1.1\r\nBad Header\r\n\r\n"], 400, id="a header without a colon"),
        pytest.param([b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n"], 400, id="a target that is no URL"),
        pytest.param([b"POST / HTTP/1.1\r\nBad\r\n\r\n" + b"x" * 70_000], 400, id="a bad header before a long body"),
        pytest.param([b"POST http://[ HTTP/1.1\r\n\r\n" + b"x" * 70_000], 400, id="no URL before a long body"),
        pytest.param([b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000], 431, id="a head without end"),
        pytest.param([b"GET /" + b"x" * 40_000, b"x" * 40_000], 431, id="a path without end"),
        pytest.param([b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n"], 431, id="a path that is too long for a URL"),
        pytest.param([b"GET / HTTP/1.1\r\nHost:"], 408, id="half a head"),
        pytest.param([], 408, id="nothing"),
    ],
)
def test_what_is_no_request_gets_an_error_and_nothing_else(
    parts: list[bytes], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "HEAD_S", 0.2)

    async def client(port: int, _server: Any) -> None:
        found, reply = await send_raw(port, *parts)
        assert (found, list(reply)) == (status, ["error"])

    serve(client)


def test_more_connections_than_allowed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "MOST_CONNECTIONS", 1)

    async def client(port: int, _server: Any) -> None:
        _, first = await asyncio.open_connection("127.0.0.1", port)
        assert (await send_raw(port))[0] == 503
        first.close()

    serve(client)


@pytest.mark.parametrize("stops", [False, True])
def test_a_client_that_never_reads_its_reply_loses_its_connection(stops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "READ_S", 0.1)

    async def client(port: int, server: Any) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not server.server_state.total_requests:
            await asyncio.sleep(0.01)
        server.should_exit = stops
        while server.server_state.connections:
            await asyncio.sleep(0.01)
        writer.close()

    serve(client)


def test_a_client_that_reads_slowly_gets_its_whole_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "READ_S", 0.2)

    async def client(port: int, _server: Any) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        taken = 0
        while part := await reader.read(2**20):
            taken += len(part)
            await asyncio.sleep(0.001)
        assert taken > 2**24
        writer.close()

    serve(client)


def test_a_head_waits_for_no_body_that_takes_long() -> None:
    taken = asyncio.Event()

    async def answer_after_the_head(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await answer_slowly(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        while not taken.is_set():
            await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": b"ok"})

    async def client(port: int, _server: Any) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        taken.set()
        assert await reader.read() == b"ok"
        writer.close()

    serve(client, answer_after_the_head)


def test_a_second_interrupt_breaks_answers_off_without_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def client(port: int, server: Any) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not server.server_state.tasks:
            await asyncio.sleep(0.01)
        for _ in range(2):
            server.handle_exit(signal.SIGINT, None)
        writer.close()

    caplog.set_level(logging.INFO, "uvicorn.error")  # as another server of this process may leave it
    with pytest.raises(KeyboardInterrupt):
        serve(client)
    assert not caplog.records


ASK = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([ASK + b"no HTTP\r\n\r\n"], [b"200"], id="no HTTP"),
        pytest.param([ASK * 2 + b"no HTTP\r\n\r\n"], [b"200", b"200"], id="two answers"),
        pytest.param(
            [ASK, b"GET /b HTTP/1.1\r\nX: " + b"x" * 70_000, b"x" * 70_000], [b"200"], id="a head without end"
        ),
        pytest.param([POST + b"Content-Length: 2\r\n\r\n{}", b"\n"], [b"200"], id="a line end after a body"),
        pytest.param([POST + "Content-Length: 3\r\n\r\n{é}".encode()], [b"400"], id="a length in characters"),
        pytest.param([POST + b"Transfer-Encoding: chunked\r\n\r\n", b"no length\r\n"], [b"400"], id="no chunk"),
    ],
)
def test_an_answer_under_way_outlives_what_follows_its_request(
    parts: list[bytes], expected: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "HEAD_S", 0.1)

    async def client(port: int, _server: Any) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.01)
        found = (await reader.read()).split(b"HTTP/1.1 ")[1:]
        writer.close()
        assert [reply[:3] for reply in found] == expected
        assert b"connection: close" in found[-1]

    serve(client, GuardedApp(answer_slowly, Guard(body_s=0.3), Metrics()))


def test_a_client_that_leaves_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    gone = asyncio.Event()

    async def answer_who_has_left(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await answer_slowly(scope, receive, send)
            return
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(40):
                await send({"type": "http.response.body", "body": PART, "more_body": True})
            await send({"type": "http.response.body"})
        finally:
            gone.set()

    async def client(port: int, _server: Any) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(ASK * 2)
        await asyncio.sleep(0.05)
        writer.transport.abort()
        while not gone.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)

    serve(client, answer_who_has_left)
    assert not caplog.records


def test_requests_that_a_client_sends_ahead_are_read_as_they_are_answered() -> None:
    async def client(port: int, server: Any) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50_000)
        while not server.server_state.connections:
            await asyncio.sleep(0.01)
        (connection,) = server.server_state.connections
        while server.server_state.total_requests < 4:
            await asyncio.sleep(0.01)
        waiting = len(connection.pipeline)
        writer.transport.abort()
        assert waiting < 2**18 / 35  # what one read of the socket holds

    serve(client)


def test_requests_under_way_and_those_that_still_arrive_are_answered_when_the_server_stops() -> None:
    ask = b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def client(port: int, server: Any) -> None:
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        connections[0][1].write(ask % 0)  # under way
        await asyncio.sleep(0.05)
        server.should_exit = True
        await asyncio.sleep(0.2)  # the server has heard it
        connections[1][1].write(ask % 1)  # on a connection that was idle
        replies = [await reader.read() for reader, _ in connections]
        for number, reply in enumerate(replies):
            assert reply.startswith(b"HTTP/1.1 200 ")
            assert reply.endswith(b'{"path":"/%d"}' % number)
        assert b"connection: close" in replies[1]
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    serve(client)


PART = b"x" * 2**20
CHUNK = b"%x\r\n%b\r\n" % (len(PART), PART)


@pytest.mark.parametrize(
    ("rules", "head", "parts", "status"),
    [
        pytest.param(Guard(), b"Content-Length: %d" % (12 * 2**20), [PART] * 12, 413, id="as its head says"),
        pytest.param(Guard(), b"Transfer-Encoding: chunked", [CHUNK] * 12 + [b"0\r\n\r\n"], 413, id="in chunks"),
        pytest.param(
            Guard("sesame"),
            b"Content-Length: %d\r\nConnection: close" % (12 * 2**20),
            [PART] * 12,
            401,
            id="without the token",
        ),
    ],
)
def test_a_client_that_sends_a_refused_body_to_its_end_reads_the_error(
    rules: Guard, head: bytes, parts: list[bytes], status: int
) -> None:
    async def client(port: int, _server: Any) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
        found = await reader.read()
        writer.close()
        assert found.startswith(b"HTTP/1.1 %d " % status)
        assert list(orjson.loads(found.partition(b"\r\n\r\n")[2])) == ["error"]

    serve(client, GuardedApp(answer_slowly, rules, Metrics()))


def test_a_refused_body_is_read_only_so_far_and_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "DRAINED_BYTES", 2**21)

    async def client(port: int, _server: Any) -> None:
        head = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % 2**40
        _, endless = await asyncio.open_connection("127.0.0.1", port)
        endless.write(head)
        with suppress(ConnectionError):
            while True:  # until the server breaks it off, or the test its deadline
                endless.write(PART)
                await endless.drain()
        reader, silent = await asyncio.open_connection("127.0.0.1", port)
        silent.write(head)
        assert (await reader.read()).startswith(b"HTTP/1.1 413 ")
        silent.close()

    serve(client, GuardedApp(answer_slowly, Guard(body_s=0.5), Metrics()))
