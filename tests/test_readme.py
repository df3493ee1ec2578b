"""The README is true: its commands run, its YAML is the configuration's defaults, its commands exist."""

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from runs.config.run_config import RunConfig
from tests.support import programs
from tests.support.small_corpus import write_corpus, write_topics

ROOT = Path(__file__).parents[1]
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


def test_the_yaml_shows_every_key_with_its_default() -> None:
    (text,) = blocks("yaml")
    shown = yaml.safe_load(text)
    minimal = {key: shown[key] for key in ("run_id", "index", "topics")}
    assert RunConfig.model_validate(minimal).model_dump(mode="json") == shown


def test_make_has_the_targets_that_the_readme_names() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))
    assert {"demo", "test", "check", "lint"} <= named
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in named)
