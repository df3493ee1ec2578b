"""Locks, groups of processes and modes on this system, and their branches for Windows with a stand-in of `msvcrt`."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from keystone.indexing.errors import UserError
from keystone.indexing.io import system
from keystone.indexing.io.api_keys import read_key
from keystone.indexing.io.writing import exchange, lock_folder
from tests.support.places import ROOT
from tests.support.programs import run

FOLDERS = ("fusion", "generation", "indexing", "retrieval", "runs")
LACKING = {"fcntl", "grp", "msvcrt", "pwd", "resource", "termios"}
"""Modules that Windows lacks, or that only Windows has."""
CALLS = {"os.fork", "os.getuid", "os.killpg", "os.setsid", "signal.SIGBUS", "signal.SIGHUP", "signal.SIGKILL"}
"""Names that Windows lacks."""


class Locks(ModuleType):
    """Windows' locks of bytes from the place of a handle. A wait that does not succeed is an error."""

    LK_LOCK, LK_NBLCK = 1, 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held: dict[tuple[int, int], int] = {}
        self.waits = 0

    def locking(self, handle: int, mode: int, count: int) -> None:
        assert count == 1
        place = os.fstat(handle).st_ino, os.lseek(handle, 0, os.SEEK_CUR)
        if place in self.held:
            self.waits += mode == self.LK_LOCK
            if self.waits == 2:
                del self.held[place]  # the other process ends
            raise PermissionError(13, "Permission denied")
        self.held[place] = handle


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[Locks]:
    locks = Locks()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "platform", "win32")
        patched.setitem(sys.modules, "msvcrt", locks)
        yield locks


@pytest.mark.parametrize("name", ["posix", "win32"])
def test_a_file_has_one_holder_and_keeps_its_place(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if name == "win32":
        request.getfixturevalue("windows")
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with path.open("r+b") as one, path.open("r+b") as other:
        one.seek(3)
        system.lock_file(one.fileno())
        assert one.read() == b"tent"
        with pytest.raises(BlockingIOError):
            system.lock_file(other.fileno())
        assert other.read() == b"content"
    assert path.read_bytes() == b"content"


def test_windows_waits_for_a_lock_longer_than_one_of_its_calls(windows: Locks, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as one, (tmp_path / "file").open("r+b") as other:
        system.lock_file(one.fileno())
        system.lock_file(other.fileno(), wait=True)
    assert windows.waits == 2


def test_windows_locks_a_folder_by_a_file_beside_it(windows: Locks, tmp_path: Path) -> None:
    with lock_folder(tmp_path / "out"):
        with pytest.raises(UserError, match="another process is writing here"), lock_folder(tmp_path / "out"):
            pass
        assert list((tmp_path / "out").iterdir()) == []
    assert {place for _, place in windows.held} == {system.LOCKED_BYTE}


@pytest.mark.usefixtures("windows")
def test_windows_reads_a_key_of_any_mode(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    (tmp_path / "key").chmod(0o644)
    assert read_key("NAME", tmp_path / "key") == "secret"


@pytest.mark.usefixtures("windows")
def test_windows_exchanges_folders_by_renames(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    exchange(tmp_path / "one", tmp_path / "other")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*")) == ["one/other", "other/one"]


@pytest.mark.usefixtures("windows")
def test_windows_kills_a_process_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    system.kill_group(17)
    assert ran == [["taskkill", "/F", "/T", "/PID", "17"]]


@pytest.mark.parametrize(("soft", "hard", "after"), [(64, 200, 164), (64, 128, 128), (64, 64, 64)])
def test_more_files_may_be_open_as_far_as_the_system_allows(soft: int, hard: int, after: int) -> None:
    code = (
        "import resource; from keystone.indexing.io.system import allow_open_files;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); allow_open_files(100);"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    said = run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said.strip() == str((after, hard))


def find_lacking(tree: ast.AST) -> set[str]:
    """The modules and names of a module's code that not every system has."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {node.module or "" for node in imports if isinstance(node, ast.ImportFrom)}
    modules |= {one.name for node in imports for one in node.names}
    names = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {"ctypes.CDLL(None)"} if "ctypes.CDLL(None" in ast.unparse(tree) else set()
    return modules & LACKING | names & CALLS | names & {"ctypes.CDLL(None)"}


@pytest.mark.slow
def test_only_one_module_uses_what_windows_lacks() -> None:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix(): find_lacking(ast.parse(path.read_text())) for path in paths}
    assert {name for name, lacking in found.items() if lacking} == {"indexing/io/system.py"}
    assert found["indexing/io/system.py"] >= {"fcntl", "msvcrt", "os.killpg", "ctypes.CDLL(None)"}
