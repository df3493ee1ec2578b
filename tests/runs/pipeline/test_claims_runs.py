"""Runs whose answers are made from claims: every track, kept replies, kills, and documents by their grades."""

import shutil
from collections import Counter
from pathlib import Path

import orjson
import pytest

from keystone.indexing.index import Index
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.topic_steps import rank_by_grade
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import CORPUS, TRIAL_WARNINGS, write_topics
from tests.support.models.plain_model import say
from tests.support.processes import run_with_kills
from tests.support.runs.answer_files import ANSWERED_TRACKS
from tests.support.runs.command_line import keystone
from tests.support.runs.model_runs import answer_command, list_submissions, read_run_content
from tests.support.servers.chat import serving

pytestmark = pytest.mark.slow

CLAIMS = ("--set", "answer.method=claims", "--set", "answer.documents=3")


@pytest.mark.parametrize("name", ANSWERED_TRACKS)
def test_answers_from_claims_are_valid_for_every_track(name: str, index: Index, tmp_path: Path) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say) as server:
        settings = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}", f"track={name}"]
        model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
        directory = run(read_config(None, [*settings, model, "answer.method=claims"], "keystone"), threads=2)
    found = validate(directory / TRACKS[name].answer_file, TRACKS[name], read_topics(topics))
    assert {violation.kind for violation in found} <= TRIAL_WARNINGS
    answers = [orjson.loads(line) for line in (directory / "answers.jsonl").read_bytes().splitlines()]
    for answer in answers:
        assert answer["sentences"]
        for sentence in answer["sentences"]:
            own = {id for id, (_, text) in CORPUS.items() if sentence["text"] in text}
            assert own & {citation.partition("#")[0] for citation in sentence["citations"]}


@pytest.mark.nightly
def test_a_run_from_claims_that_is_killed_ends_with_the_same_bytes(index: Index, tmp_path: Path) -> None:
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
        arguments = [*answer_command(index, tmp_path, server, "run"), "--set", "model.concurrency=2", *CLAIMS]
        run_with_kills(*arguments, times=6, kills=4, done=done)
    assert sum(repeated) <= 2 * 6, "a kill loses at most the replies that are on their way"


def test_the_command_answer_gives_the_answers_of_a_run(index: Index, tmp_path: Path) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say) as server:
        assert keystone(*answer_command(index, tmp_path, server, "run"), *CLAIMS).returncode == 0
        (submission,) = [path for path in list_submissions(tmp_path / "out/keystone") if path.name.startswith("rag")]
        inputs = ["--index", index.folder, "--topics", topics]
        command = [*map(str, answer_command(index, tmp_path, server)), *map(str, inputs), *CLAIMS]
        made = keystone(*command, "--out", tmp_path / "answers.jsonl")
    assert made.returncode == 0, made.stderr
    answers = (tmp_path / "answers.jsonl").read_bytes().splitlines()
    assert sorted(answers) == sorted(submission.read_bytes().splitlines()), (
        "answers stand in the order in which they are done"
    )


@pytest.mark.parametrize("method", ["answers", "claims"])
def test_a_query_is_answered_from_documents_with_a_grade_for_it(method: str, index: Index, tmp_path: Path) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say) as server:
        settings = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}", f"answer.method={method}"]
        model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
        directory = run(read_config(None, [*settings, model], "keystone"), threads=2)
    records = [orjson.loads(line) for line in (directory / "grades.jsonl").read_bytes().splitlines()]
    graded = {
        (query, doc_id)
        for record in records
        for query, grades in zip(record["queries"], record["grades"], strict=True)
        for doc_id, grade in zip(record["documents"], grades, strict=True)
        if grade
    }
    evidence = [orjson.loads(line)["items"] for line in (directory / "evidence.jsonl").read_bytes().splitlines()]
    read = {(item["query_id"], item["span"]["doc_id"]) for items in evidence for item in items}
    answered = {query for query, _ in graded}
    assert {pair for pair in read if pair[0] in answered} <= graded
    assert len(read & graded) > len(answered), "a query has several documents"


def test_documents_of_a_query_are_ranked_by_grade_then_by_rank() -> None:
    assert rank_by_grade({7: 1, 3: 2, 5: 2, 9: 1}, [5, 7, 3]) == [5, 3, 7, 9]
    assert rank_by_grade({}, [5, 7]) == []
