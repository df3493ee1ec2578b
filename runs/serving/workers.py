"""Workers: further processes of a server, which search by BM25, so that many clients use several cores.

The first process takes all connections, and gives them in turn to itself and to its workers. A worker reads only
requests for searches by BM25 and for documents. As soon as another one comes, it gives the connection back, with the
bytes that it has read, and the first process keeps it. So only the first one has a model, sessions and the page.
"""

import asyncio
import logging
import pickle
import re
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from struct import Struct
from subprocess import DEVNULL, PIPE, Popen
from typing import Any, cast

import orjson

from keystone.generation.rerank.settings import RerankSettings
from keystone.indexing.errors import UserError
from keystone.runs.config.run_config import RunConfig
from keystone.runs.serving.app import make_app
from keystone.runs.serving.call_log import CallLog, end_call_log
from keystone.runs.serving.rest.routes import needs_only_bm25
from keystone.runs.serving.served import open_served
from keystone.runs.serving.server.guard import Guard
from keystone.runs.serving.server.listen import BoundedProtocol, Server, listen
from keystone.runs.serving.server.metrics import Metrics

READY, CONNECTION, COUNTS = b"r", b"c", b"n"
"""The kinds of messages: a worker can search; a connection, with the bytes that were read of it; counts of requests."""
READ_BYTES, READ_CONNECTIONS = 2**18, 64
"""The most bytes and connections that are taken from a channel at once."""
COUNT_S = 2.0
"""How long a worker may take to tell its counts. After that, they are left out."""
RESTART_S = 2.0
"""The pause before another worker starts in place of one that has ended."""
LOOK_S = 0.02
"""The pause between two looks whether workers have started or ended, or whether a client has taken its reply."""

_HEAD = Struct("cI")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*(?=\r\n)")
_log = logging.getLogger(__name__)
Take = Callable[[bytes, bytes, socket.socket | None], None]
"""Takes a message: its kind, its body, and the connection that came with it."""


class Channel:
    """One end of a pair of sockets between two processes, for messages and for connections of clients."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._bytes = bytearray()
        self._connections: deque[int] = deque()

    def send(self, kind: bytes, body: bytes = b"", connection: int | None = None) -> None:
        """Send a message, and with it a connection by its file descriptor. `OSError` if it cannot be sent."""
        message = _HEAD.pack(kind, len(body)) + body
        sent = socket.send_fds(self.end, [message], [] if connection is None else [connection])
        self.end.sendall(message[sent:])

    def give(self, transport: Any, read: bytes = b"") -> bool:
        """Give a connection to the other process, with the bytes that were read of it. False if it cannot be given."""
        try:
            self.send(CONNECTION, read, transport.get_extra_info("socket").fileno())
        except OSError:
            return False
        transport.close()
        return True

    def listen(self, take: Take, end: Callable[[], None]) -> None:
        """Have the running event loop call `take` for each message, and `end` after the last one."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            try:
                found, connections, *_ = socket.recv_fds(self.end, READ_BYTES, READ_CONNECTIONS, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                found, connections = b"", []
            self._bytes += found
            self._connections += connections
            for kind, body in self._split():
                if kind != CONNECTION:
                    take(kind, body, None)
                elif self._connections:
                    take(kind, body, socket.socket(fileno=self._connections.popleft()))
                else:
                    _log.error("a connection is lost: this process may open no more files")
            if not found:
                loop.remove_reader(self.end)
                end()

        loop.add_reader(self.end, read)

    def _split(self) -> Iterator[tuple[bytes, bytes]]:
        """Split off the messages that have arrived whole: the kind and the body of each."""
        while len(self._bytes) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._bytes)
            if len(self._bytes) < _HEAD.size + length:
                return
            body = bytes(self._bytes[_HEAD.size : _HEAD.size + length])
            del self._bytes[: _HEAD.size + length]
            yield kind, body


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is told when it starts. `channel` is the file descriptor of its end."""

    config: RunConfig
    log: CallLog
    threads: int
    guard: Guard
    channel: int = -1


@dataclass(eq=False, slots=True)
class Worker:
    """A worker, as the first process knows it."""

    process: "Popen[bytes]"
    channel: Channel
    is_ready: bool = False
    counts: "asyncio.Future[Any] | None" = None
    """The counts that it was asked for, or None if it has ended instead."""


class PassedProtocol(asyncio.Protocol):
    """A new connection that is given to a worker. If the worker cannot take it, the first process keeps it."""

    def __init__(self, channel: Channel, make_own: Callable[[], asyncio.Protocol]) -> None:
        self._channel, self._make_own = channel, make_own

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the connection away before anything is read of it."""
        if not self._channel.give(transport):
            own = self._make_own()
            cast(asyncio.Transport, transport).set_protocol(own)
            own.connection_made(transport)


class Workers:
    """The workers of a first process. They open the index while the first process does so itself."""

    def __init__(self, number: int, task: Task) -> None:
        self._task, self._turn, self._is_serving = task, 0, False
        self._workers = [self._start() for _ in range(number)]

    def _start(self) -> Worker:
        own, theirs = socket.socketpair()
        own.setblocking(False)  # a full channel must not hold up the first process
        with theirs:
            task = replace(self._task, channel=theirs.fileno())
            code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import run_worker; run_worker()"
            passed = [task.channel, *([task.log.descriptor] if task.log.path else [])]
            process = Popen([sys.executable, "-P", "-c", code], stdin=PIPE, stdout=DEVNULL, pass_fds=passed)
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as tasks:  # if the process has ended, its channel tells
            pickle.dump(task, tasks)
        return Worker(process, Channel(own))

    async def open(self, server: Server) -> None:
        """Begin to take connections from the workers, and wait until they can search. `UserError` if one ends."""
        for worker in self._workers:
            self._listen_to(worker, server)
        number = len(self._workers)
        while not all(worker.is_ready for worker in self._workers) and not server.should_exit:
            await asyncio.sleep(LOOK_S)
        if len(self._workers) < number:
            raise UserError("--workers: a worker has ended before it could search")
        self._is_serving = True

    def _listen_to(self, worker: Worker, server: Server) -> None:
        def take(kind: bytes, body: bytes, connection: socket.socket | None) -> None:
            if connection is not None:
                server.adopt(BoundedProtocol, connection, body)
            elif kind == READY:
                worker.is_ready = True
            elif worker.counts is not None and not worker.counts.done():
                worker.counts.set_result(orjson.loads(body))

        def end() -> None:
            self._workers.remove(worker)
            worker.channel.end.close()
            code = worker.process.wait()
            if worker.counts is not None and not worker.counts.done():
                worker.counts.set_result(None)
            if self._is_serving and not server.should_exit:
                _log.error("a worker has ended with code %d; another one starts in %g seconds", code, RESTART_S)
                asyncio.get_running_loop().call_later(RESTART_S, restart)

        def restart() -> None:
            if self._is_serving:
                self._workers.append(self._start())
                self._listen_to(self._workers[-1], server)

        worker.channel.listen(take, end)

    def make_protocol(self, **given: Any) -> asyncio.Protocol:
        """Make the protocol of a new connection, which the first process and the workers get in turn."""
        ready = [None, *(worker for worker in self._workers if worker.is_ready)]
        self._turn += 1
        worker = ready[self._turn % len(ready)]
        make_own = partial(BoundedProtocol, **given)
        return make_own() if worker is None else PassedProtocol(worker.channel, make_own)

    async def ask_counts(self) -> list[Any]:
        """Ask the workers for their counts of requests, as `Metrics.export` gives them."""
        asked = []
        for worker in self._workers:
            if worker.counts is None or worker.counts.done():
                worker.counts = asyncio.get_running_loop().create_future()
                with suppress(OSError):
                    worker.channel.send(COUNTS)
            asked.append(worker.counts)
        done = (await asyncio.wait(asked, timeout=COUNT_S))[0] if asked else set()
        return [counts for one in done if (counts := one.result()) is not None]

    async def close(self, server: Server) -> None:
        """Let the workers end, and meanwhile answer what they give back; not if the server ends at once."""
        self._is_serving = False
        for worker in self._workers:
            with suppress(OSError):
                worker.channel.end.shutdown(socket.SHUT_WR)
        while self._workers and not server.force_exit:
            await asyncio.sleep(LOOK_S)

    def kill(self) -> None:
        """Kill the workers that have not ended."""
        for worker in self._workers:
            worker.process.kill()
            worker.process.wait()


@contextmanager
def open_workers(number: int, task: Task) -> Iterator[Workers]:
    """Start workers, and end them with the block. `UserError` if this system cannot give connections away."""
    if not hasattr(socket, "send_fds"):
        raise UserError(f"--workers: found {number + 1}, expected 1, since this system gives no connections away")
    plain = task.config.model_copy(update={"model": None, "rerank": RerankSettings()})
    workers = Workers(number, replace(task, config=plain))
    try:
        yield workers
    finally:
        workers.kill()


def run_worker() -> None:
    """Run a worker, whose `Task` stands in the standard input, until the first process ends its channel."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt at a terminal reaches the first process, too
    task: Task = pickle.load(sys.stdin.buffer)
    channel, metrics = Channel(socket.socket(fileno=task.channel)), Metrics()
    try:
        with (
            end_call_log(task.log),
            open_served(task.config, task.log, task.threads, lambda _: None, only_bm25=True) as served,
        ):

            def count() -> bytes:
                with served.use() as service:
                    return orjson.dumps(metrics.export(service))

            app = make_app(served, task.guard, metrics)
            listen(app, None, lambda: channel.send(READY), FirstProcess(channel, count))
    except UserError as error:
        sys.exit(f"a worker of keystone serve: {error}")


class FirstProcess:
    """The first process, as a worker knows it. `count` makes the counts that it asks for."""

    def __init__(self, channel: Channel, count: Callable[[], bytes]) -> None:
        self._channel, self._count = channel, count

    async def open(self, server: Server) -> None:
        """Begin to take connections. When the first process ends the channel, the server stops."""

        def take(kind: bytes, body: bytes, connection: socket.socket | None) -> None:
            if connection is not None:
                server.adopt(self.make_protocol, connection, body)
            elif kind == COUNTS:
                self._channel.send(COUNTS, self._count())

        def end() -> None:
            server.should_exit = True

        self._channel.listen(take, end)

    def make_protocol(self, **given: Any) -> "SearchProtocol":
        """Make the protocol of a connection."""
        protocol = SearchProtocol(**given)
        protocol.channel = self._channel
        return protocol

    async def close(self, server: Server) -> None:
        """Let the first process go on."""


class SearchProtocol(BoundedProtocol):
    """A connection in a worker, which reads one request at a time. Of one that it cannot answer, it reads nothing."""

    channel: Channel
    _unread = b""
    _left = 0
    """The bytes of the request under way that have not been read."""

    def data_received(self, data: bytes) -> None:
        """Take a part of a request, or what follows one under way."""
        self._unread += data
        self._read_on()

    def on_response_complete(self) -> None:
        """Go on with what has followed the request."""
        super().on_response_complete()
        if self._unread:
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        while self._unread and not self.transport.is_closing():
            if not self._left:
                if not self._is_idle():
                    self.flow.pause_reading()
                    return
                self._left = measure_request(self._unread)
                if not self._left:
                    self._give_back()
                    return
            part, self._unread = self._unread[: self._left], self._unread[self._left :]
            self._left -= len(part)
            super().data_received(part)

    def _give_back(self) -> None:
        """Give the connection to the first process, when the client has taken all of the reply before."""
        if self.transport.get_write_buffer_size():
            self.flow.pause_reading()
            self.loop.call_later(LOOK_S, self._read_on)
        elif not self.channel.give(self.transport, self._unread):
            self._end(503, "the server has stopped: try again later")


def measure_request(read: bytes) -> int:
    """Measure the bytes of the first request that a connection begins with; 0 if a worker cannot answer it.

    A worker cannot tell as long as the head is not whole, nor the length of a body that comes in chunks.
    """
    head, blank, _ = read.partition(b"\r\n\r\n")
    line, _, _ = head.partition(b"\r\n")
    headers = head[len(line) :].lower() + b"\r\n"
    lengths = _LENGTH.findall(headers)
    if not blank or len(lengths) > 1 or b"\r\ntransfer-encoding" in headers or b"\r\nexpect" in headers:
        return 0
    if not needs_only_bm25(line.decode("latin-1")):
        return 0
    return len(head) + len(blank) + sum(map(int, lengths))
