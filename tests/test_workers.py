"""Files that use one server have one process. A test that ends its process fails alone, and every other test runs."""

import sys
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.places import ROOT
from tests.support.scheduling import TOGETHER, FileScheduling

CONFTEST = """
from tests.support.scheduling import FileScheduling

def pytest_xdist_make_scheduler(config, log):
    return FileScheduling(config, log)
"""
KILLS = """
import os

def test_{name}():
    os._exit(1)
"""
PASSES = """
def test_{name}():
    pass
"""


def test_one_process_runs_the_files_that_use_one_server() -> None:
    scheduling = object.__new__(FileScheduling)
    for file, other in TOGETHER.items():
        assert all((ROOT / name).exists() for name in (file, other))
        assert {scheduling._split_scope(f"{name}::test_a[b::c]") for name in (file, other)} == {other}


FEW: list[list[str]] = [["k"], ["pk", "kp"], ["pp", "pp", "pkp"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "files",
    [["pkkp", "ppp", "k"], ["pkpkp", "pkpkp"], *(pytest.param(files, marks=pytest.mark.nightly) for files in FEW)],
)
def test_a_test_that_ends_its_process_fails_alone(tmp_path: Path, files: list[str]) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number, kinds in enumerate(files):
        tests = [(KILLS if kind == "k" else PASSES).format(name=f"{kind}{i}") for i, kind in enumerate(kinds)]
        (tmp_path / f"test_{number}.py").write_text("".join(tests))
    options = ["-q", "-n2", "--no-loadscope-reorder", "--max-worker-restart=9", "-c", "/dev/null"]
    done = programs.run(
        [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", tmp_path],
        capture_output=True,
        text=True,
        cwd=ROOT,
        seconds=120,
    )
    killed, passed = (sum(kinds.count(kind) for kinds in files) for kind in "kp")
    counts = f"{killed} failed, {passed} passed" if passed else f"{killed} failed"
    assert done.returncode == 1
    assert f"{counts} in " in done.stdout
