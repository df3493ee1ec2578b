"""The commands of the pages for a checkout run in a copy of it, by the real `make`.

Its programs do their work; tests/test_site.py runs `make docs`. So that this takes seconds, pytest runs one file in one
process where a target runs all, mypy reads one module, and the linters work only under `make lint`. No benchmark, demo
(tests/runs/demo) or installation begins: the test only sees that they are asked for.
"""

import re
import shutil
from pathlib import Path

import pytest

from tests.support.checkout import call_real, copy_checkout, run_there
from tests.support.pages import list_commands

FILE = "tests/fusion/test_rrf.py"
ONE_FILE = (
    f'case "$*" in *tests/*) ;; *) set -- "$@" {FILE} -n 1 ;; esac\n{call_real("pytest", "-p", "no:cacheprovider")}'
)
LINT = 'test -z "$LINTED" || exit 0\n'
LINTERS = ["ruff check .", "ruff format --check --quiet .", "mypy", "lint-imports"]
COMMANDS = {re.sub(r" *#.*", "", command): command for command in list_commands(r"make (?!docs)|\.venv/bin/")}
"""Each command by itself, without the comment after it."""
CALLS = {
    "make setup": [
        "uv pip install --quiet --python .venv/bin/python --requirement requirements.lock",
        "uv pip install --quiet --python .venv/bin/python --no-deps --editable .",
        "python -m keystone.indexing.io.published",
    ],
    "make demo": ["keystone demo"],
    "make check": [*LINTERS, "pytest -n 2 -m not slow and not nightly"],
    "make test": [*LINTERS, "pytest -n 4 -m not nightly"],
    "make nightly": [*LINTERS, "pytest -n 4 --no-loadscope"],
    "make lint": LINTERS,
    "make test-opensearch": ["pytest tests/indexing/opensearch"],
    "make wheel": ["uv build"],
    "make bench": ["python -m benchmarks"],
}
"""What each target asks of the environment, at least, by the beginnings of calls."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(
        tmp_path_factory.mktemp("checkout"),
        pytest=ONE_FILE,
        ruff=LINT + call_real("ruff"),
        mypy=LINT + call_real("mypy", "keystone/indexing/languages.py"),
        uv=f'test "$1" = build || exit 0\nshift\n{call_real("uv", "build", "--offline", "--no-build-isolation")}',
        **{"lint-imports": LINT + call_real("lint-imports")},
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_a_checkout_runs(name: str, checkout: Path) -> None:
    if name == "make setup":
        (checkout / ".venv/.ready-cpu").unlink()
    few = {"PYTEST_ADDOPTS": "--collect-only"} if "opensearch" in name or "runs/evaluation" in name else {}
    done, calls = run_there(checkout, COMMANDS[name], LINTED="" if name == "make lint" else "1", **few)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    expected = CALLS.get(name, [])
    assert [call for call in expected if not any(found.startswith(call) for found in calls)] == [], calls
    if any(call.startswith("pytest") for call in calls):
        assert re.search(r"\d (passed|tests collected)", done.stdout), done.stdout
    if name == "make wheel":
        assert sorted(path.suffix for path in (checkout / "dist").glob("keystone*")) == [".gz", ".whl"]
        shutil.rmtree(checkout / "dist")
    if name == "make setup":
        assert (checkout / ".venv/.ready-cpu").exists()


def test_each_target_of_the_table_is_a_command_of_a_page() -> None:
    assert [name for name in CALLS if name not in COMMANDS] == []
