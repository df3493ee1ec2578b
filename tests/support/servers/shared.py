"""Servers and files that all processes of a test run share: the first one that needs them makes them.

A server runs in a keeper, which is a process that belongs to nobody. Each process that uses the server holds the write
end of a named pipe, whose other end is the keeper's standard input. So the keeper ends with the last of them, however
they end. If it leaves the server behind, `tied.py` ends that.
"""

import fcntl
import importlib
import json
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import programs
from tests.support.waiting import wait_until

START_TIMEOUT_S = 600.0
"""A server must be ready within this time."""
PIPE, LOG, SAID, LOCK = "pipe", "log", "said.json", "lock"
"""Files of a shared server: the pipe, the output of its keeper, what it says of itself, and the lock on all three."""


def find_shared_folder(factory: pytest.TempPathFactory) -> Path:
    """The folder of a test run that all of its processes know."""
    folder = factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder of the test run that `make` fills, in the first process that asks for it."""
    folder = find_shared_folder(factory) / name
    folder.mkdir(exist_ok=True)
    with _locked(folder / LOCK):
        if not (folder / "made").exists():
            make(folder)
            (folder / "made").touch()
    return folder


@contextmanager
def share_server(factory: pytest.TempPathFactory, name: str, start: str, *arguments: str) -> Iterator[Any]:
    """Share a server, and give what it says of itself. In the keeper, the context manager `start` starts it.

    `start` ("module:function") gets these arguments, and gives a JSON value when the server is ready.
    """
    folder = find_shared_folder(factory) / name
    folder.mkdir(exist_ok=True)
    with _locked(folder / LOCK):
        held = _hold(folder / PIPE)
        try:
            if held is None:
                held = _start_keeper(folder, start, arguments)
            said = json.loads((folder / SAID).read_text())
        except BaseException:
            if held is not None:
                os.close(held)
            raise
    try:
        yield said
    finally:
        os.close(held)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _hold(pipe: Path) -> int | None:
    """Open the pipe of a keeper that runs; None without one."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # nobody reads it, or it does not exist
        return None


def _start_keeper(folder: Path, start: str, arguments: tuple[str, ...]) -> int:
    """Start a keeper and wait until its server is ready; returns the pipe that it reads."""
    for name in (PIPE, SAID):
        (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / PIPE)
    both = os.open(folder / PIPE, os.O_RDWR)  # neither end waits for the other
    with (folder / PIPE).open("rb", buffering=0) as end, (folder / LOG).open("wb") as log:
        keeper = programs.start_apart([sys.executable, "-m", __name__, folder, start, *arguments], end, log)
        held = os.open(folder / PIPE, os.O_WRONLY)
    os.close(both)
    try:
        said = folder / SAID
        wait_until(lambda: said.exists() or keeper.poll() is not None, f"{start} to be ready", START_TIMEOUT_S)
        assert said.exists(), f"the keeper of {start} has ended"
    except BaseException as error:
        os.close(held)
        error.add_note((folder / LOG).read_text(errors="replace")[-4000:])
        raise
    return held


def _keep(folder: Path, start: str, *arguments: str) -> None:
    """Start a server, tell that it is ready, and end it after the last process has left the pipe."""
    module, _, function = start.partition(":")
    with getattr(importlib.import_module(module), function)(*arguments) as said:
        (folder / "new").write_text(json.dumps(said))
        (folder / "new").rename(folder / SAID)
        while _is_used(folder):
            os.read(sys.stdin.fileno(), 1)


def _is_used(folder: Path) -> bool:
    """Whether a process holds the pipe. Otherwise the pipe is removed, so that the next process starts a keeper."""
    with _locked(folder / LOCK):
        poll = select.poll()
        poll.register(sys.stdin.fileno(), select.POLLIN)
        used = not any(event & select.POLLHUP for _, event in poll.poll(0))
        if not used:
            (folder / PIPE).unlink()
    return used


if __name__ == "__main__":
    _keep(Path(sys.argv[1]), *sys.argv[2:])
