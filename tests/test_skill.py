"""The commands of the skill run in their order, but for its server; those of AGENTS.md exist in this checkout."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.places import ROOT

BIN = Path(sys.executable).parent
ENV = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def blocks(page: str) -> list[str]:
    return re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.slow
def test_the_commands_of_the_skill_run_in_their_order(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.jsonl")
    write_topics(tmp_path / "topics.jsonl")
    (tmp_path / "qrels.txt").write_text("1 0 d1 1\n")
    *steps, serve = blocks("skills/keystone/SKILL.md")
    assert len(steps) == 5
    for step in steps:
        shown = programs.run(["bash", "-euc", step], cwd=tmp_path, env=ENV, capture_output=True, text=True, check=False)
        assert shown.returncode == 0, f"{step}\n{shown.stdout}\n{shown.stderr}"
    assert serve == "keystone serve index --port 8080\n"


def test_each_command_of_agents_md_is_a_command_of_this_checkout() -> None:
    (block,) = blocks("AGENTS.md")
    for line in block.splitlines():
        program, *rest = line.split()
        assert (BIN / Path(program).name).exists(), line
        assert all((ROOT / word).exists() for word in rest if "/" in word), line
