"""The demo prints what the README says, goes on where a reply is missing, and its corpus fits any machine."""

import sys
from pathlib import Path

import pytest

from indexing.types import silent
from runs.demo import main
from tests.support import programs
from tests.support.places import ROOT

pytestmark = pytest.mark.slow


def print_demo(capsys: pytest.CaptureFixture[str]) -> str:
    """What the demo prints, with its files in the working directory."""
    main.run_demo(Path("demo-out"), 2, silent)()
    return capsys.readouterr().out


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the replies belong to the documentation of CPython 3.11")
def test_the_demo_prints_the_table_of_the_readme_and_one_narrative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = print_demo(capsys)
    _, _, after = (ROOT / "README.md").read_text().partition("```text\n")
    assert after.partition("```")[0] in printed
    assert printed.count(": valid for rag25, 1 warning\n") == 4
    _, _, story = printed.partition("\nNarrative 8 in keystone:\n")
    assert "\n  [1] shutil: 3\n" in story
    assert "\nFolders are walked most easily with pathlib, " in story
    assert story.endswith("\nOpen in a browser, to see the runs side by side: demo-out/report.html\n")
    assert "<title>narrative, rules, keystone – Keystone</title>" in Path("demo-out/report.html").read_text()

    monkeypatch.setattr(main, "MODEL", "another-model")
    printed = print_demo(capsys)
    assert "The run keystone is left out" in printed
    assert "(another-model: no recorded reply to a request of 'decompose', key " in printed
    assert printed.count(": valid for rag25, 1 warning\n") == 2
    assert "Narrative 8" not in printed
    assert "<title>narrative, rules – Keystone</title>" in Path("demo-out/report.html").read_text()


def test_no_page_names_the_folder_of_this_python(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    programs.run([sys.executable, "-m", "runs.demo.corpus", corpus], check=True, cwd=ROOT)
    found = corpus.read_text()
    assert "module.platform" in found
    assert sys.prefix not in found
    assert " at 0x" not in found
