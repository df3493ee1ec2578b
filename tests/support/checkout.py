"""A copy of the checkout, in which `make` runs its targets without setting anything up again."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from subprocess import CompletedProcess

from tests.support import programs
from tests.support.places import ROOT

FOLDERS = ("keystone", "indexing", "retrieval", "fusion", "generation", "runs", "tests", "benchmarks", "docs", "skills")
MADE = ("out", "site", "*.egg-info")
READY = (".venv/.ready-cpu", ".venv/.ready-dev", ".venv/.ready-bench", *(
    f"{folder}/.ready" for folder in (".venv-vllm", ".venv-routir", ".opensearch", ".venv-docs")
))  # fmt: skip
"""What `make` finds after set-up."""
STAND_IN = """#!/bin/bash
printf '%s\\n' "$(basename "$0") $*" >>"$CALLS"
set -- "${{@/#.venv\\/bin\\/python/{python}}}"
{then}
"""
"""A program of an environment: it writes down how it is called, and then does its work or nothing."""


def copy_checkout(folder: Path, **then: str) -> Path:
    """Copy the checkout, as set up, into `folder`. Its environments have stand-ins for these programs.

    `then` maps the name of a program to the line of bash that does its work. Without one, the program does nothing.
    """
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns(*MADE))
    for path in ROOT.iterdir():
        if path.is_file() and not path.is_symlink():
            shutil.copy2(path, folder)
    for environment in (".venv", ".venv-docs"):
        (folder / environment / "bin").mkdir(parents=True)
    for name in ("python", "uv", "keystone", "ruff", "mypy", "lint-imports", "pytest", "mkdocs"):
        program = folder / (".venv-docs" if name == "mkdocs" else ".venv") / "bin" / name
        program.write_text(STAND_IN.format(python=sys.executable.replace("/", "\\/"), then=then.get(name, "")))
        program.chmod(0o755)
    for name in READY:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    return folder


def run_there(folder: Path, command: str, **environment: str) -> tuple[CompletedProcess[str], list[str]]:
    """Run a command in a copy of the checkout; returns it, and the calls of programs of its environments."""
    calls = folder / "calls.txt"
    calls.write_text("")
    given = {**os.environ, "CALLS": str(calls), "PYTHONPATH": str(folder), "CI": "", **environment}
    given = {name: value for name, value in given.items() if not name.startswith(("MAKE", "PYTEST_"))} | environment
    done = programs.run(["bash", "-euc", command], cwd=folder, env=given, capture_output=True, text=True)
    return done, calls.read_text().splitlines()


def call_real(name: str, *arguments: str) -> str:
    """The line of bash that does the work of a program of this environment, with the arguments that it is given."""
    return shlex.join(["exec", str(Path(sys.executable).with_name(name)), *arguments]) + ' "$@"'
