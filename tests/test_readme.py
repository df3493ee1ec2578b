"""README is true and short: its commands run, its YAML describes a run, and its list of pages has every page."""

import os
import re
import sys
from pathlib import Path

import pytest

from keystone.runs.config.read import read_config
from tests.support import programs
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.places import ROOT

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.slow
def test_the_five_lines_for_your_own_corpus_run_as_they_stand(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.jsonl")
    write_topics(tmp_path / "topics.jsonl")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").touch()
    script = next(block for block in blocks("console") if "keystone index" in block)
    assert len(script.splitlines()) == 5
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shown = programs.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[-1].endswith("valid for rag25: 0 errors, 2 warnings")


def test_the_yaml_of_a_model_describes_a_run(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    (tmp_path / "model.yaml").write_text(text)
    config = read_config(tmp_path / "model.yaml", None, "keystone")
    assert config.model is not None
    assert (config.model.name, config.find_model_step()) == ("my-model", "queries.method: contract")
    assert any("keystone run model.yaml --preset keystone " in block for block in blocks("console"))


def test_the_readme_is_short_and_shows_a_result_within_a_screen() -> None:
    assert len(re.sub(r"```.*?```", "", README, flags=re.DOTALL).split()) < 800
    before, table, _ = README.partition("nDCG@10  nDCG@30")
    assert table
    assert before.count("\n") < 40


def test_the_list_of_pages_has_every_page() -> None:
    named = set(re.findall(r"\]\(([\w-]+\.(?:md|ipynb))", (ROOT / "docs/README.md").read_text()))
    pages = {page.name for page in (ROOT / "docs").iterdir() if page.suffix in {".md", ".ipynb"}}
    assert named == pages - {"README.md"}
