"""The calls of all fronts and their log: one line of JSON for each, so that `keystone replay` repeats a session."""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import orjson
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from keystone.indexing.errors import NotWritten
from keystone.indexing.io.json_values import digest
from keystone.runs.config.run_config import RunConfig

RETRY_S = 5.0
"""The pause after the file could not be written."""
MOST_WAITING = 10_000
"""The most lines that wait for the file. Keystone drops the lines of further calls."""
FIRST_BYTES = b'{"time":'
"""The beginning of each line, by which a torn line is recognised."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """A request as its front understood it. `arguments` are JSON, and with them the front can repeat the call."""

    front: str
    """The front: `rest`, `mcp` or `web`."""
    operation: str
    arguments: Mapping[str, Any]
    session: str = ""
    """The session of the client, if its front has sessions."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The body of a reply with its HTTP status, and the ids that it shows to the caller, in order."""

    body: bytes
    status: int = 200
    surfaced: Sequence[str] = ()
    """Documents or segments that a search found."""
    read: Sequence[str] = ()
    """Documents or segments whose text was asked for by id."""
    cited: Sequence[str] = ()
    """Segments or documents that an answer cites."""


@dataclass(frozen=True, slots=True)
class CallLog:
    """The open log. Each line names the index and the settings by their keys. `path` is None if nothing is logged."""

    path: Path | None
    index_key: str
    settings_key: str
    descriptor: int = field(default=-1, repr=False)
    lines: list[bytes] = field(default_factory=list, repr=False)
    """The lines that are not in the file yet. As long as there are any, the event loop is asked to write them."""


@contextmanager
def open_call_log(path: Path | None, index_key: str, settings_key: str) -> Iterator[CallLog]:
    """Open the log to add lines at its end. `NotWritten` if the file cannot be written.

    Without a path, nothing is logged. A last line that a stopped server has torn is cut off, so that no later line
    continues it.
    """
    if path is None:
        yield CallLog(None, index_key, settings_key)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        _end_last_line(path, descriptor)
    except OSError as error:
        raise NotWritten(path, error.strerror or "") from error
    try:
        with end_call_log(CallLog(path, index_key, settings_key, descriptor)) as log:
            yield log
    finally:
        os.close(descriptor)


@contextmanager
def end_call_log(log: CallLog) -> Iterator[CallLog]:
    """At the end of a block, write the lines that wait. `NotWritten` if the file cannot be written."""
    try:
        yield log
    finally:
        try:
            _write_lines(log)
        except OSError as error:
            assert log.path is not None  # else there are no lines
            raise NotWritten(log.path, error.strerror or "") from error


def log_call(log: CallLog, call: Call, reply: Reply) -> None:
    """Add the line of one call, with the hash of the reply's bytes. The running event loop writes it in its next round.

    In this way, calls that are answered together are written together.
    """
    if log.path is None:
        return
    line = {
        "time": round(time.time(), 3),
        "index": log.index_key,
        "settings": log.settings_key,
        "front": call.front,
        "session": call.session,
        "operation": call.operation,
        "arguments": call.arguments,
        "status": reply.status,
        "bytes": len(reply.body),
        "sha256": hashlib.sha256(reply.body).hexdigest(),
        "surfaced": reply.surfaced,
        "read": reply.read,
        "cited": reply.cited,
    }
    if len(log.lines) < MOST_WAITING:
        log.lines.append(orjson.dumps(line) + b"\n")
    if len(log.lines) == 1:
        asyncio.get_running_loop().call_soon(_try_to_write, log)


def _try_to_write(log: CallLog) -> None:
    try:
        _write_lines(log)
    except OSError as error:
        _log.error("%s: cannot be written: %s; %d lines wait", log.path, error.strerror, len(log.lines))
        asyncio.get_running_loop().call_later(RETRY_S, _try_to_write, log)


def _write_lines(log: CallLog) -> None:
    """Write the lines that wait. `OSError` if the file takes only a part of them; the rest keeps waiting."""
    waiting = memoryview(b"".join(log.lines))
    try:
        while waiting:
            waiting = waiting[os.write(log.descriptor, waiting) :]
    finally:
        log.lines[:] = bytes(waiting).splitlines(keepends=True)


def _end_last_line(path: Path, descriptor: int) -> None:
    """Cut off a torn last line. If a whole one, or text of another origin, lacks its line end, add it."""
    if not (size := path.stat().st_size):
        return
    with path.open("rb") as file, mmap(file.fileno(), size, access=ACCESS_READ) as text:
        last = text[text.rfind(b"\n") + 1 :]
    if not last:
        return
    try:
        orjson.loads(last)
    except orjson.JSONDecodeError:
        if last.startswith(FIRST_BYTES) or FIRST_BYTES.startswith(last):
            _log.warning("%s: the last line is torn after %d bytes; it is cut off", path, len(last))
            os.truncate(path, size - len(last))
            return
    os.write(descriptor, b"\n")


def make_settings_key(config: RunConfig) -> str:
    """Make the key of a configuration: the digest of all its settings but the paths."""
    return digest(config.model_dump(mode="json", exclude={"out", "index", "topics"}))


@dataclass(frozen=True, slots=True)
class Front:
    """A front of one service. Its routes turn a request into a `Call`, perform it, and log it with its `Reply`."""

    routes: Sequence[BaseRoute]
    perform: Callable[[Call], Awaitable[Reply]]
    """Performs a call, from a request or from the log: the same call on the same index has a reply of equal bytes."""
    direct: Mapping[str, ASGIApp] = field(default_factory=dict)
    """Applications by a path, or by the beginning of all their paths if that ends with `/`.

    They are asked in the order of the fronts, before any route and without its cost.
    """
