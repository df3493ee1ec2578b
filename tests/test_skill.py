"""The commands of the skill, and those of AGENTS.md, run in their order."""

import json
import os
import re
import sys
from pathlib import Path
from subprocess import PIPE
from urllib.request import urlopen

import pytest

from tests.support import programs
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.places import ROOT
from tests.support.servers.ports import free_port
from tests.support.waiting import within

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
    command = serve.replace("8080", str(port := free_port()))
    with programs.started(["bash", "-euc", f"exec {command}"], cwd=tmp_path, env=ENV, stdout=PIPE) as process:
        assert process.stdout is not None
        assert f":{port}" in within(process.stdout.readline, "the skill's server to listen").decode()
        with urlopen(f"http://127.0.0.1:{port}/v1/index/search?query=honey+bees") as reply:
            assert json.load(reply)["candidates"]


def test_each_command_of_agents_md_is_a_command_of_this_checkout() -> None:
    (block,) = blocks("AGENTS.md")
    for line in block.splitlines():
        program, *rest = line.split()
        assert (BIN / Path(program).name).exists(), line
        assert all((ROOT / word).exists() for word in rest if "/" in word), line


@pytest.mark.slow
@pytest.mark.nightly
def test_the_commands_of_agents_md_run() -> None:
    """CI runs the same checks in short by `make lint`."""
    (block,) = blocks("AGENTS.md")
    env = {name: value for name, value in ENV.items() if not name.startswith("PYTEST_")}
    for line in block.splitlines():
        command = line.replace(".venv/bin", str(BIN))
        done = programs.run(["bash", "-euc", command], cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
