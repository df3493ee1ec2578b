"""The README is true and short: its commands run, and its YAML describes a run."""

import os
import re
import sys
from pathlib import Path

import pytest

from keystone.runs.config.read import read_config
from tests.support import programs
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.places import ROOT

pytestmark = pytest.mark.slow

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
    assert (config.model.name, config.find_model_step()) == ("my-model", "queries.method: model")
    assert "keystone run model.yaml --preset keystone\n" in blocks("console")


def test_a_newcomer_reads_fewer_than_900_words() -> None:
    before, heading, _ = README.partition("\n## Where to go next\n")
    assert heading
    assert len(before.split()) < 900
