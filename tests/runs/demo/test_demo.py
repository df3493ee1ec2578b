"""The demo's corpus does not depend on the machine that makes it."""

import sys
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.places import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_no_page_names_the_folder_of_this_python(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    programs.run([sys.executable, "-m", "runs.demo.corpus", corpus], check=True, cwd=ROOT)
    found = corpus.read_text()
    assert "module.platform" in found
    assert sys.prefix not in found
    assert " at 0x" not in found
