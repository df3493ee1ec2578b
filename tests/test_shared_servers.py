"""A server that all processes of a test run share: it starts once, and ends with the last of them, however they end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.places import ROOT
from tests.support.servers.shared import share_server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

START = "tests.test_shared_servers:keep"
USER = f"""
import sys
from pathlib import Path
from types import SimpleNamespace
from tests.support.servers.shared import share_server

with share_server(SimpleNamespace(getbasetemp=lambda: Path(sys.argv[1])), "server", "{START}", sys.argv[1]) as said:
    print(said, flush=True)
    sys.stdin.read()
"""


@contextmanager
def keep(folder: str) -> Iterator[int]:
    """A server that leaves a file as it ends, and says its process id."""
    server = programs.start([sys.executable, "-c", "import time; time.sleep(3600)"])
    try:
        yield server.pid
    finally:
        programs.kill(server)
        (Path(folder) / f"ended-{server.pid}").touch()


@contextmanager
def used(folder: Path) -> Iterator["tuple[subprocess.Popen[str], int]"]:
    """A process that uses the server, and the process id that the server said."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    with programs.started([sys.executable, "-c", USER, folder], cwd=ROOT, env=environment, **pipes) as process:
        assert process.stdout
        yield process, int(process.stdout.readline())


def wait_for_end(folder: Path, server: int) -> None:
    wait_until((folder / f"ended-{server}").exists, "the server to end")
    assert not Path(f"/proc/{server}").exists()


def test_a_server_starts_once_outlives_its_first_process_and_ends_with_the_last(tmp_path: Path) -> None:
    with used(tmp_path) as (second, server):
        with used(tmp_path) as (first, same):
            assert same == server
            os.kill(first.pid, signal.SIGKILL)
        assert Path(f"/proc/{server}").exists()
        os.kill(second.pid, signal.SIGKILL)
        wait_for_end(tmp_path, server)
    with used(tmp_path) as (_, another):
        assert another != server
    wait_for_end(tmp_path, another)


def test_a_server_ends_with_a_keeper_that_is_killed_and_the_next_process_starts_another(tmp_path: Path) -> None:
    with used(tmp_path) as (_, server):
        keeper = int(Path(f"/proc/{server}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{server}").exists(), "the server to end")
        with used(tmp_path) as (_, another):
            assert another != server
            assert Path(f"/proc/{another}").exists()
    wait_for_end(tmp_path, another)


@contextmanager
def fail(_: str) -> Iterator[None]:
    raise OSError("no port is free")
    yield


def test_a_server_that_cannot_start_is_an_error_with_its_last_words(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        pytest.raises(AssertionError, match="has ended") as error,
        share_server(tmp_path_factory, "failing", "tests.test_shared_servers:fail", ""),
    ):
        pass
    assert "no port is free" in "".join(error.value.__notes__)
