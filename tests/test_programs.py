"""Programs that tests start end with them, and every wait of a test has a deadline."""

import ast
import os
import signal
import sys
from pathlib import Path
from threading import Event

import pytest

from tests.support import programs
from tests.support.waiting import LIMIT_S, wait_until, within

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

TREE = """
import os, signal, subprocess, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(2)]
made = Path(sys.argv[1]).with_suffix(".part")
made.write_text(" ".join(str(pid) for pid in [os.getpid(), *(child.pid for child in children)]))
made.rename(sys.argv[1])
time.sleep(600)
"""
"""A server that ignores SIGTERM, starts processes of its own, and writes their ids to a file."""

TESTS = """
import os, signal, sys, time
from pathlib import Path
from tests.support import programs
from tests.support.waiting import wait_until
server = programs.start([sys.executable, "-c", sys.argv[1], sys.argv[2]])
wait_until(Path(sys.argv[2]).exists, "the server to start its processes")
if sys.argv[3] == "frozen":
    os.killpg(server.pid, signal.SIGSTOP)
Path(sys.argv[2]).with_suffix(".begun").touch()
time.sleep(0 if sys.argv[3] == "ends" else 600)
"""
"""Tests that start this server."""


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    state = programs.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.mark.parametrize("how", ["killed", "frozen", "ends"])
def test_servers_end_with_the_tests_that_started_them(how: str, tmp_path: Path) -> None:
    named = tmp_path / "processes"
    with programs.started([sys.executable, "-c", TESTS, TREE, named, how], cwd=ROOT) as tests:
        wait_until(named.with_suffix(".begun").exists, "the tests to start their server")
        if how != "ends":
            os.kill(tests.pid, signal.SIGKILL)
        tests.wait(LIMIT_S)
    pids = [int(pid) for pid in named.read_text().split()]
    assert len(pids) == 3
    wait_until(lambda: not any(map(alive, pids)), "the end of the server and its processes", 30)


def test_a_program_that_hangs_is_ended_with_its_processes_and_named(tmp_path: Path) -> None:
    named = tmp_path / "processes"
    with programs.started([sys.executable, "-c", TREE, named]):
        wait_until(named.exists, "the server to start its processes")
        pids = [int(pid) for pid in named.read_text().split()]
        assert all(map(alive, pids))
    wait_until(lambda: not any(map(alive, pids)), "the end of the server and its processes", 30)
    with pytest.raises(AssertionError, match=r"waited 0\.1 s in vain for the end of .*sleep\(600\)"):
        programs.run([sys.executable, "-c", "import time; time.sleep(600)"], seconds=0.1)


def test_a_wait_beyond_its_deadline_names_the_awaited_event() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.05 s in vain for rain"):
        wait_until(lambda: False, "rain", 0.05)
    with pytest.raises(AssertionError, match=r"waited 0\.05 s in vain for a word"):
        within(Event().wait, "a word", 0.05)
    assert wait_until(lambda: 3, "a number") == within(lambda: 3, "a number") == 3


HANGS = """
import ctypes, threading

def test_before():
    pass

def test_that_waits_without_end():
    threading.Event().wait()

def test_between():
    pass

def test_that_hangs_outside_of_python():
    lock = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(lock)

def test_after():
    pass
"""


@pytest.mark.slow
def test_a_test_that_hangs_fails_alone(tmp_path: Path) -> None:
    """The tests run with this project's settings, apart from time limits, in separate processes as in `make test`."""
    path = tmp_path / "test_hangs.py"
    path.write_text(HANGS)
    limits: list[str | Path] = ["--override-ini=timeout=4", "--override-ini=faulthandler_timeout=10"]
    arguments = ["-n", "1", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, *limits, path]
    shown = programs.run([sys.executable, "-m", "pytest", *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert "test_that_waits_without_end - Failed: Timeout" in shown.stdout
    assert "crashed while running 'test_hangs.py::test_that_hangs_outside_of_python'" in shown.stdout
    assert "2 failed, 3 passed" in shown.stdout


def unbounded(call: ast.Call) -> bool:
    """Whether a call waits without a deadline, or starts a program that does not end with the tests."""
    if not isinstance(call.func, ast.Attribute):
        return False
    name, of = call.func.attr, getattr(call.func.value, "id", "")
    given = call.args or call.keywords
    return (
        (name in ("wait", "join", "result", "communicate") and not given)
        or (name == "urlopen" and not any(keyword.arg == "timeout" for keyword in call.keywords))
        or (of == "subprocess" and name in ("run", "Popen", "call", "check_call", "check_output"))
    )


def sleeps(loop: ast.While) -> bool:
    """Whether a loop sleeps until a condition holds, instead of calling `wait_until`."""
    calls = [ast.unparse(node.func) for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return "time.sleep" in calls


def test_every_wait_of_a_test_has_a_deadline() -> None:
    found = [
        f"{path.name}:{node.lineno}: {ast.unparse(node).splitlines()[0]}"
        for path in sorted(Path(__file__).parent.rglob("*.py"))
        if path.name not in ("programs.py", "waiting.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Call) and unbounded(node)) or (isinstance(node, ast.While) and sleeps(node))
    ]
    assert not found
