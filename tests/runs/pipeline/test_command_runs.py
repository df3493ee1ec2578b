"""A run whose model is a command: its files are valid, and no process runs again for a kept reply."""

import shutil
import sys
from pathlib import Path

import pytest

from keystone.indexing.index import Index
from keystone.runs.trec.topics import read_topics
from tests.support.places import ROOT
from tests.support.runs.command_line import keystone
from tests.support.runs.model_runs import check_submissions, read_run_content

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support.models.reading_model import say_to
with Path({log!r}).open("a") as log:
    log.write("x")
print(say_to(sys.stdin.read()))
"""


@pytest.mark.parametrize("reader", ["plain", "agent"])
def test_a_run_by_a_command_is_valid_and_repeats_nothing(
    reader: str, index: Index, topics: Path, tmp_path: Path
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    (tmp_path / "model.py").write_text(PROGRAM.format(root=str(ROOT), log=str(log)))
    settings = {
        "model": f"{{name: plain, backend: command, command: {sys.executable} {tmp_path}/model.py, concurrency: 2}}",
        "out": out, "index": index.folder, "topics": topics, "reader.name": reader, "grading.method": "none",
        "answer.method": "claims",
    }  # fmt: skip
    arguments = ["run", "--preset", "keystone", "--quiet"]
    arguments += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    made = keystone(*arguments)
    assert made.returncode == 0, made.stderr
    asked, whole = log.read_text(), read_run_content(out / "keystone")
    shutil.rmtree(out / "keystone")
    assert keystone(*arguments).returncode == 0
    assert log.read_text() == asked
    assert read_run_content(out / "keystone") == whole
    check_submissions(out / "keystone", read_topics(topics))
