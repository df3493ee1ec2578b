"""Runs with answers from whole documents: open questions are searched again, and kills change nothing."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.indexing.index import Index
from keystone.runs.tracks.validate import detect_track, validate
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import TRIAL_WARNINGS, write_topics
from tests.support.models.plain_model import say
from tests.support.processes import run_with_kills
from tests.support.runs.command_line import keystone
from tests.support.runs.model_runs import answer_command, list_submissions, read_run_content
from tests.support.servers.chat import serving

pytestmark = pytest.mark.slow

FEW = ["--set", "answer.documents=1"]


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize(("rounds", "gaps"), [(0, "true"), (1, "true"), (2, "false")])
def test_open_questions_are_searched_again_and_gaps_admitted(
    rounds: int, gaps: str, index: Index, tmp_path: Path
) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say) as server:
        arguments = [*answer_command(index, tmp_path, server, "run"), *FEW, "--set", f"answer.rounds={rounds}"]
        made = keystone(*arguments, "--set", f"answer.gaps={gaps}")
        assert made.returncode == 0, made.stderr
    folder = tmp_path / "out/keystone"
    for evidence in read_lines(folder / "evidence.jsonl"):
        shown = {item["span"]["doc_id"] for item in evidence["items"]}
        added = set(evidence.get("added", ()))
        assert added <= shown
        assert len(shown) == 1 + len(added)
        assert bool(added) is bool(evidence.get("checks")) is (rounds > 0)
        for check in evidence.get("checks", ()):
            assert check["found"] == "not" or check["quote"]["doc_id"] in shown
    for answer in read_lines(folder / "answers.jsonl"):
        *sentences, last = answer["sentences"]
        assert all(sentence["citations"] for sentence in sentences)
        assert (last["text"], last["citations"]) == (answer["missing"], []) or gaps == "false"
    for path in list_submissions(folder):
        assert {v.kind for v in validate(path, detect_track(path), read_topics(topics))} <= TRIAL_WARNINGS


@pytest.mark.nightly
def test_a_run_from_whole_documents_that_is_killed_ends_with_the_same_bytes(index: Index, tmp_path: Path) -> None:
    write_topics(tmp_path / "topics.jsonl")
    made = tmp_path / "out/keystone"
    whole: dict[str, bytes] = {}
    repeated: list[int] = []

    def done() -> None:
        whole.update(whole or read_run_content(made))
        assert read_run_content(made) == whole
        paid = Counter(map(orjson.dumps, server.answered))
        repeated.append(sum(paid.values()) - len(paid))
        server.answered.clear()
        shutil.rmtree(tmp_path / "out")

    with serving(model=say, latency=0.02) as server:
        arguments = [*answer_command(index, tmp_path, server, "run"), "--set", "model.concurrency=2", *FEW]
        run_with_kills(*arguments, times=6, kills=4, done=done)
    assert sum(repeated) <= 2 * 6, "a kill loses at most the replies that are on their way"


def test_the_command_answer_searches_again_as_a_run_does(index: Index, tmp_path: Path) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say) as server:
        assert keystone(*answer_command(index, tmp_path, server, "run"), *FEW).returncode == 0
        (submission,) = [path for path in list_submissions(tmp_path / "out/keystone") if path.name.startswith("rag")]
        inputs = ["--index", index.folder, "--topics", topics]
        command = [*map(str, answer_command(index, tmp_path, server)), *map(str, inputs), *FEW]
        made = keystone(*command, "--out", tmp_path / "answers.jsonl")
    assert made.returncode == 0, made.stderr
    answers, submitted = (path.read_bytes().splitlines() for path in (tmp_path / "answers.jsonl", submission))
    assert sorted(answers) == sorted(submitted)
