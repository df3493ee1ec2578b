"""The server process: uvicorn with bounds on connections and on the heads of requests, and a stop that loses nothing.

On SIGTERM the server takes no more connections. It answers every request that has arrived, and those that arrive on
open connections within `DRAIN_S`, with `Connection: close`. Then the process ends with 0.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Collection
from typing import Any, Protocol, cast

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from keystone.indexing.errors import UserError
from keystone.runs.serving.server import WHOLE
from keystone.runs.serving.server.json_replies import make_error

HEAD_BYTES, HEAD_S = 2**16, 10.0
"""The most bytes, and the most seconds, of the first line and the headers of a request."""
TOO_LONG = f"head: found more than {HEAD_BYTES} bytes"
KEEP_ALIVE_S = 75
READ_S = 60.0
"""How long a client may read nothing of a reply that waits for it."""
MOST_CONNECTIONS = 1024
DRAIN_S = 0.5
"""How long an idle connection stays open after SIGTERM."""
STOP_S = 300
"""How long answers under way may take after SIGTERM."""
ERROR_HEAD = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
PHRASES = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large", 503: b"Unavailable"}


class PipelineFlow(FlowControl):
    """Reads no further requests from a connection as long as some that have arrived wait for their turn."""

    def __init__(self, transport: asyncio.Transport, waiting: Collection[object]) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        """Read on, unless requests wait."""
        if not self._waiting:
            super().resume_reading()


class ReplyTransport:
    """The transport of one reply, which writes the head and the beginning of the body together.

    A system call for each would take a tenth of the time of a search. A head without a body goes alone, in the
    next round of the event loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head: bytes | None = None
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write a part of the reply, unless it is the first. If the client has left, nothing is written."""
        if self._head is None:
            self._head = data
            self._loop.call_soon(self.write, b"")
        elif not self.is_closing():
            self._transport.write(self._head + data)
            self._head = b""

    def close(self) -> None:
        """Close the connection when all parts are written."""
        self.write(b"")
        self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """One connection. A head that is too long, too slow or no HTTP gets an error in JSON, and the connection ends."""

    _head_bytes = 0
    _in_head = True
    _timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _drains = False
    given = b""
    """The first bytes of the connection, if another process has read them."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head, unless there are too many connections."""
        super().connection_made(transport)
        self.flow = PipelineFlow(transport, self.pipeline)
        if len(self.connections) > MOST_CONNECTIONS:
            self._end(503, f"{MOST_CONNECTIONS} connections are open: try again later")
        else:
            self._timer = self.loop.call_later(HEAD_S, self._end_slow)
            if self.given:
                self.data_received(self.given)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        if self._read_timer is not None:
            self._read_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request. If the connection ends with the reply under way, the part is ignored."""
        if self.transport.is_closing() or (self._in_head and not self._is_idle() and not self.cycle.keep_alive):
            return
        if self._in_head:
            self._head_bytes += len(data)
        try:
            super().data_received(data)
        except httptools.HttpParserCallbackError as error:  # such as a target that is no URL
            self.logger.debug("%s", error)
            self.send_400_response("Invalid HTTP request received.")
        if self._head_bytes > HEAD_BYTES:
            self._end(431, TOO_LONG)
        elif self._timer is None and self._head_bytes:
            self._timer = self.loop.call_later(HEAD_S, self._end_slow)

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._in_head, self._head_bytes = False, 0
        self._stop_timer()
        super().on_headers_complete()
        if self.scope["method"] != "HEAD":  # a reply to HEAD has no body to wait for
            self.cycle.transport = cast(asyncio.Transport, ReplyTransport(self.transport, self.loop))
        self.cycle.keep_alive = self.cycle.keep_alive and not self._drains

    def on_message_complete(self) -> None:
        """Begin to wait for the next head."""
        self._in_head = True
        cast(dict[str, Any], self.scope)[WHOLE] = True
        super().on_message_complete()

    def shutdown(self) -> None:
        """Close the connection: after the answers under way, or after `DRAIN_S` if no request arrives."""
        self._drains = True
        if self._is_idle():
            self.loop.call_later(DRAIN_S, self._close)
        else:
            self._close()

    def pause_writing(self) -> None:
        """Wait until the client has taken more of the reply."""
        super().pause_writing()
        self._watch_reader()

    def on_response_complete(self) -> None:
        """Wait until the client has taken the reply."""
        super().on_response_complete()
        self._watch_reader()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or a URL that is too long to be parsed."""
        is_long = len(getattr(self, "url", b"")) >= HEAD_BYTES
        self._end(431 if is_long else 400, TOO_LONG if is_long else msg)

    def _watch_reader(self, before: int | None = None) -> None:
        """Break off the connection if no more bytes are written to it and the client has read none for `READ_S`."""
        if self._read_timer is not None:
            self._read_timer.cancel()
        left = self.transport.get_write_buffer_size()
        if left == before and (self.flow.write_paused or self.transport.is_closing()):
            self.transport.abort()
        elif left:
            self._read_timer = self.loop.call_later(READ_S, self._watch_reader, left)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _close(self) -> None:
        if self._is_idle():
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _end_slow(self) -> None:
        self._end(408, f"head: not whole within {HEAD_S:g} seconds")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, status: int, message: str) -> None:
        """Send an error, unless answers are under way on the connection, and close it after them.

        A request whose body breaks off is not under way: it can have no answer.
        """
        is_idle = self._is_idle() or (self.cycle.more_body and not self.cycle.response_started and not self.pipeline)
        if is_idle and not self.transport.is_closing():
            body = make_error(message, status).body
            self.transport.write(ERROR_HEAD % (status, PHRASES[status], len(body)) + body)
            self.transport.close()
        self._close()


def open_socket(host: str, port: int) -> socket.socket:
    """Bind a port; 0 takes a free one. `UserError` if it cannot be bound."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        raise UserError(f"--host {host} --port {port}: cannot be bound: {error.strerror or error}") from error


class Others(Protocol):
    """The other processes of a server, which give connections to this one and take some from it."""

    async def open(self, server: "Server") -> None:
        """Begin to take connections. `UserError` if a process has ended."""

    def make_protocol(self, **given: Any) -> asyncio.Protocol:
        """Make the protocol of a new connection, from what uvicorn gives to each."""

    async def close(self, server: "Server") -> None:
        """Let the other processes end, and meanwhile answer requests on the connections that they give back."""


class Server(uvicorn.Server):
    """A server that announces when it takes connections, and may share them with other processes."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], object], others: Others | None) -> None:
        super().__init__(config)
        self._announce, self._others = announce, others
        self._adopting: set[asyncio.Task[Any]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections, when the other processes do as well."""
        if self._others is not None:
            await self._others.open(self)
        await super().startup(sockets)
        if not self.should_exit:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End after the answers under way, and after the other processes."""
        if self._others is not None:
            for server in self.servers:
                server.close()
            for connection in list(self.server_state.connections):
                connection.shutdown()
            await self._others.close(self)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop; after a second signal, at once."""
        super().handle_exit(sig, frame)
        if self.force_exit:  # what breaks off then is no error
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    def adopt(self, make_protocol: Callable[..., BoundedProtocol], connection: socket.socket, given: bytes) -> None:
        """Take over a connection from another process, with the bytes of it that the process has read."""
        protocol = make_protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        protocol.given = given
        connection.setblocking(False)

        async def connect() -> None:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection)
            if self.should_exit:  # the others have been told before
                protocol.shutdown()

        task = asyncio.create_task(connect())
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)


def make_server(app: ASGIApp, announce: Callable[[], object], others: Others | None = None) -> Server:
    """Make the server of an application. `announce` is called when it takes connections."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return Server(
        uvicorn.Config(
            app,
            http=BoundedProtocol if others is None else cast(type[asyncio.Protocol], others.make_protocol),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_S,
        ),
        announce,
        others,
    )


def listen(
    app: ASGIApp, bound: socket.socket | None, announce: Callable[[], object], others: Others | None = None
) -> None:
    """Serve an application until SIGTERM or an interrupt. `announce` is called when connections are taken.

    Without a socket, `others` give all connections.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises the signal again after the last answer
    try:
        make_server(app, announce, others).run([] if bound is None else [bound])
    finally:
        signal.signal(signal.SIGTERM, before)
