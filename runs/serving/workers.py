"""Workers: further processes of a server, which search by BM25, so that many clients use several cores.

The first process takes all connections, and gives them in turn to itself and to its workers. A worker reads only
requests for searches by BM25 and for documents. As soon as another one comes, it gives the connection back, with the
bytes that it has read, and the first process keeps it. So only the first one has a model, sessions and the page.
"""

import asyncio
import logging
import os
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from struct import Struct
from subprocess import DEVNULL, PIPE, Popen
from typing import Any, cast

import orjson
import yaml
from pydantic import TypeAdapter

from keystone.generation.rerank.settings import RerankSettings
from keystone.indexing.errors import UserError
from keystone.runs.config.run_config import RunConfig
from keystone.runs.serving.app import make_app
from keystone.runs.serving.call_log import CallLog, end_call_log
from keystone.runs.serving.rest.routes import needs_only_bm25
from keystone.runs.serving.served import open_served
from keystone.runs.serving.server.guard import Guard
from keystone.runs.serving.server.listen import STOP_S, BoundedProtocol, Server, listen
from keystone.runs.serving.server.metrics import Metrics

READY, CONNECTION, COUNTS = b"r", b"c", b"n"
"""The kinds of messages: a worker can search; a connection, with the bytes that were read of it; counts of requests."""
READ_BYTES = 2**18
"""The most bytes that are taken from a channel at once, with one connection, since Linux gives no more."""
COUNT_S = 2.0
"""How long a worker may take to tell its counts. After that, its last ones are used."""
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
        self._connections: deque[int | None] = deque()
        """Connections whose messages are not whole, as file descriptors; None for one that the system has dropped."""

    def send(self, kind: bytes, body: bytes = b"", connection: int | None = None) -> None:
        """Send a message, and with it a connection by its file descriptor. `OSError` if it cannot be sent."""
        message = _HEAD.pack(kind, len(body)) + body
        sent = socket.send_fds(self.end, [message], [] if connection is None else [connection])
        self.end.sendall(message[sent:])

    def tell(self, kind: bytes, body: bytes = b"") -> None:
        """Send a message, unless the other process has ended."""
        with suppress(OSError):
            self.send(kind, body)

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
                found, connections, flags, _ = socket.recv_fds(self.end, READ_BYTES, 1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                found, connections, flags = b"", [], 0
            self._bytes += found
            self._connections += connections or ([None] if flags & socket.MSG_CTRUNC else [])
            for kind, body in self._split():
                connection = self._connections.popleft() if kind == CONNECTION else None
                if kind == CONNECTION and connection is None:
                    _log.error("a connection is lost: this process may open no more files")
                else:
                    take(kind, body, None if connection is None else socket.socket(fileno=connection))
            if not found:
                loop.remove_reader(self.end)
                for left in filter(None, self._connections):
                    os.close(left)
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


_TASKS = TypeAdapter(Task)


@dataclass(eq=False, slots=True)
class Worker:
    """A worker, as the first process knows it."""

    process: "Popen[bytes]"
    channel: Channel
    is_ready: bool = False
    counts: list[Any] | None = None
    """Its counts of requests, as `Metrics.export` last gave them."""
    counted: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set when it has told its counts, and when it has ended."""


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
        self._processes: list[Popen[bytes]] = []
        self._ended_counts: list[list[Any]] = []
        self._workers = [self._start() for _ in range(number)]

    def _start(self) -> Worker:
        own, theirs = socket.socketpair()
        own.setblocking(False)  # a full channel must not hold up the first process
        with theirs:
            task = replace(self._task, channel=theirs.fileno(), log=replace(self._task.log, lines=[]))
            # A worker finds the modules that this process finds, and none beside the file of a user.
            code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import run_worker; run_worker()"
            passed = [task.channel, *([task.log.descriptor] if task.log.path else [])]
            process = Popen([sys.executable, "-P", "-c", code], stdin=PIPE, stdout=DEVNULL, pass_fds=passed)
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as tasks:  # if the process has ended, its channel tells
            tasks.write(yaml.safe_dump(_TASKS.dump_python(task, mode="json", exclude_unset=True)).encode())
        self._processes.append(process)
        return Worker(process, Channel(own))

    async def open(self, server: Server) -> None:
        """Begin to take connections from the workers, and wait until they can search. `UserError` if one ends."""
        for worker in self._workers:
            self._listen_to(worker, server)
        number = len(self._workers)
        while not all(worker.is_ready for worker in self._workers) and not server.should_exit:
            await asyncio.sleep(LOOK_S)
        if len(self._workers) < number and not server.should_exit:
            raise UserError("--workers: a worker has ended before it could search")
        self._is_serving = True

    def _listen_to(self, worker: Worker, server: Server) -> None:
        def take(kind: bytes, body: bytes, connection: socket.socket | None) -> None:
            if connection is not None:
                server.adopt(BoundedProtocol, connection, body)
            elif kind == READY:
                worker.is_ready = True
            else:
                worker.counts = orjson.loads(body)
                worker.counted.set()

        def end() -> None:
            self._workers.remove(worker)
            worker.channel.end.close()
            if worker.counts is not None:
                self._ended_counts.append([0, *worker.counts[1:]])  # no request of it is under way
            worker.counted.set()
            if self._is_serving and not server.should_exit:
                _log.error("a worker has ended; another one starts in %g seconds", RESTART_S)
                asyncio.get_running_loop().call_later(RESTART_S, restart)

        def restart() -> None:
            if not self._is_serving:
                return
            try:
                self._workers.append(self._start())
            except OSError as error:
                _log.error("no worker starts: %s; the next try is in %g seconds", error.strerror, RESTART_S)
                asyncio.get_running_loop().call_later(RESTART_S, restart)
            else:
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
        """Ask the workers for their counts of requests. If one does not tell them in time, its last ones are used."""
        workers = list(self._workers)
        for worker in workers:
            worker.counted.clear()
            worker.channel.tell(COUNTS)
        if waits := [asyncio.create_task(worker.counted.wait()) for worker in workers]:
            for late in (await asyncio.wait(waits, timeout=COUNT_S))[1]:
                late.cancel()
        return [*self._ended_counts, *(worker.counts for worker in self._workers if worker.counts is not None)]

    async def close(self, server: Server) -> None:
        """Let the workers end, and meanwhile answer what they give back, unless the server ends at once."""
        self._is_serving = False
        for worker in self._workers:
            if not worker.is_ready:
                worker.process.kill()
            with suppress(OSError):
                worker.channel.end.shutdown(socket.SHUT_WR)
        until = time.monotonic() + STOP_S
        while self._workers and not server.force_exit and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)

    def kill(self) -> None:
        """Kill the workers that have not ended."""
        for worker in self._workers:
            worker.process.kill()
        for process in self._processes:
            process.wait()


@contextmanager
def open_workers(number: int, task: Task) -> Iterator[Workers]:
    """Start workers, and end them with the block. `UserError` on other systems than Linux.

    macOS may lose connections that are on their way from one process to another, and Windows gives none away.
    """
    if sys.platform != "linux":
        raise UserError(f"--workers: found {number + 1}, expected 1, since only Linux gives connections away safely")
    workers = Workers(number, task)
    try:
        yield workers
    finally:
        workers.kill()


def run_worker() -> None:
    """Run a worker until the first process ends its channel. Standard input has its `Task` as YAML."""
    task = _TASKS.validate_python(yaml.safe_load(sys.stdin.buffer))
    plain = task.config.model_copy(update={"model": None, "rerank": RerankSettings()})
    channel, metrics = Channel(socket.socket(fileno=task.channel)), Metrics()
    try:
        with (
            end_call_log(task.log),
            open_served(plain, task.log, task.threads, lambda _: None, only_bm25=True) as served,
        ):

            def count() -> bytes:
                with served.use() as service:
                    return orjson.dumps(metrics.export(service))

            app = make_app(served, task.guard, metrics)
            listen(app, None, lambda: channel.tell(READY), FirstProcess(channel, count))
    except UserError as error:
        sys.exit(f"a worker of keystone serve: {error}")


class FirstProcess:
    """The first process, as a worker knows it. `count` makes the counts that it asks for."""

    def __init__(self, channel: Channel, count: Callable[[], bytes]) -> None:
        self._channel, self._count = channel, count

    async def open(self, server: Server) -> None:
        """Begin to take connections. When the first process ends the channel, the server stops.

        Signals do not stop it: a terminal or a supervisor sends them to the first process as well, which may still give
        connections.
        """
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_IGN)

        def take(kind: bytes, body: bytes, connection: socket.socket | None) -> None:
            if connection is not None:
                server.adopt(self.make_protocol, connection, body)
            elif kind == COUNTS:
                self._channel.tell(COUNTS, self._count())

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

    def on_headers_complete(self) -> None:
        """Begin to answer. Only the last request of those that have arrived may end a connection."""
        drains, self._drains = self._drains, self._drains and not self._unread
        super().on_headers_complete()
        self._drains = drains

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

    def _close(self) -> None:
        if self._is_idle() or not self._unread:
            super()._close()

    def _give_back(self) -> None:
        """Give the connection to the first process, when the client has taken all of the reply before."""
        if self.transport.get_write_buffer_size():
            self.flow.pause_reading()
            self.loop.call_later(LOOK_S, self._read_on)
        elif not self.channel.give(self.transport, self._unread):
            self._end(503, "the server has stopped: try again later")


def measure_request(read: bytes) -> int:
    """Measure the bytes of the first request that a connection begins with; 0 if a worker cannot answer it.

    A worker cannot answer a request before its head is whole, or one whose body comes in chunks.
    """
    head, blank, _ = read.partition(b"\r\n\r\n")
    line, _, _ = head.partition(b"\r\n")
    headers = head[len(line) :].lower() + b"\r\n"
    lengths = _LENGTH.findall(headers)
    is_plain = b"\r\ntransfer-encoding" not in headers and b"\r\nexpect" not in headers
    if not blank or not is_plain or len(lengths) > 1 or len(lengths) != headers.count(b"\r\ncontent-length"):
        return 0
    if not needs_only_bm25(line.decode("latin-1")):
        return 0
    return len(head) + len(blank) + sum(map(int, lengths))
