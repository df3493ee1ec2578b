"""The command `keystone judge battles`: a model's verdicts are asked once, unusable ones left out, and the report."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs.answered_runs import write_answered_run
from tests.support.runs.command_line import keystone
from tests.support.servers.chat import Server, serving

ANSWERS = {"good": ["Bees dance to tell.", "They dance."], "fair": ["They dance."], "bad": ["Ants walk."]}


def say(body: dict[str, Any]) -> str:
    """Prefer the answer that says `dance` more often. A request about ants has a reply that prefers both."""
    text = body["messages"][0]["content"]
    if "Request: How do ants" in text:
        return "[[A]] [[B]]"
    a, b = (found.count("dance") for found in re.findall(r'<document id="[AB]">\n(.*?)\n</document>', text, re.DOTALL))
    return "[[A]]" if a > b else "[[B]]" if b > a else "[[Tie]]"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(model=say) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, texts in ANSWERS.items():
        write_answered_run(tmp_path / "out" / name, {"1": texts, "2": texts})
    return tmp_path


@pytest.mark.slow
def test_runs_are_ranked_once_and_shown_in_a_table_a_picture_and_the_report(folder: Path, server: Server) -> None:
    runs = [f"out/{name}" for name in ANSWERS]
    model = ["--set", f"model={{name: m, urls: ['{server.url}']}}"]
    foreseen = keystone("judge", "battles", *runs, *model, "--dry-run", cwd=folder)
    assert foreseen.stdout.splitlines()[0] == "6 battles at most; nothing is written, no model is asked"
    told = json.loads(keystone("judge", "battles", *runs, *model, "--dry-run", "--json", cwd=folder).stdout)
    assert (told["result"]["battles"], told["result"]["total"]["likely"]["calls"]) == (6, 6)
    told = json.loads(keystone("judge", "battles", *runs, "--rules", "--dry-run", "--json", cwd=folder).stdout)
    assert (told["result"]["battles"], told["result"]["calls"]) == (6, [])
    assert not (folder / "arena").exists()
    done = keystone("judge", "battles", *runs, *model, "--plot", "arena.svg", cwd=folder)
    assert done.returncode == 0, done.stderr
    head, _, *rows, share, ridge, out, plot = done.stdout.splitlines()
    assert head == "3 battles on 1 narrative, judged by m"
    assert [row.split()[1] for row in rows] == ["good", "fair", "bad"]
    assert share.startswith("share of the first slot: ")
    assert ridge.startswith("ratings with a ridge of 0.1: ")
    assert (out, plot) == ("arena", "arena.svg")
    assert done.stderr.count("no verdict: it is not exactly one of [[A]]") == 3
    calls, kept = len(server.requests), (folder / "arena/judgments.jsonl").read_bytes()
    assert b'"preferred_run_id":"good"' in kept
    again = keystone("judge", "battles", *runs, *model, "--json", cwd=folder)
    assert json.loads(again.stdout)["result"]["standings"][0]["run_id"] == "good"
    assert (len(server.requests), (folder / "arena/judgments.jsonl").read_bytes()) == (calls, kept)
    files = [f"{run}/rag_output_trec_rag_2025.jsonl" for run in runs]
    shown = keystone("report", *files, "--battles", "arena", "--out", "r.html", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert 'id="battles"' in (folder / "r.html").read_text()
