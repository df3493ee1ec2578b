"""Runs whose answers are made from claims or from whole documents: tracks, kills, documents by grade, and gaps."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.indexing.index import Index
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.manifest import list_remarks
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.stages.chosen_documents import rank_by_grade
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import CORPUS, TRIAL_WARNINGS, write_topics
from tests.support.models.plain_model import say
from tests.support.runs.answer_files import ANSWERED_TRACKS
from tests.support.runs.command_line import keystone
from tests.support.runs.model_runs import answer_command, check_submissions, kill_run, list_submissions
from tests.support.servers.chat import serving

pytestmark = pytest.mark.slow

CLAIMS = ["--set", "answer.method=claims", "--set", "answer.documents=3"]
FEW = ["--set", "answer.documents=1"]
METHODS = [pytest.param(CLAIMS, id="claims"), pytest.param(FEW, id="whole documents")]


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("name", ANSWERED_TRACKS)
def test_answers_from_claims_are_valid_for_every_track(name: str, index: Index, tmp_path: Path) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say) as server:
        settings = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}", f"track={name}"]
        model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
        directory = run(read_config(None, [*settings, model, "answer.method=claims"], "keystone"), threads=2)
    found = validate(directory / TRACKS[name].answer_file, TRACKS[name], read_topics(topics))
    assert {violation.kind for violation in found} <= TRIAL_WARNINGS
    answers = read_lines(directory / "answers.jsonl")
    for answer in answers:
        assert answer["sentences"]
        for sentence in answer["sentences"]:
            own = {id for id, (_, text) in CORPUS.items() if sentence["text"] in text}
            assert own & {citation.partition("#")[0] for citation in sentence["citations"]}


@pytest.mark.nightly
@pytest.mark.parametrize("options", METHODS)
def test_a_run_that_is_killed_ends_with_the_same_bytes(options: list[str], index: Index, tmp_path: Path) -> None:
    write_topics(tmp_path / "topics.jsonl")
    with serving(model=say, latency=0.02) as server:
        arguments = [*answer_command(index, tmp_path, server, "run"), "--set", "model.concurrency=2", *options]
        kill_run(tmp_path / "out/keystone", *arguments, times=6, kills=4, server=server)


@pytest.mark.parametrize("options", METHODS)
def test_the_command_answer_gives_the_answers_of_a_run(options: list[str], index: Index, tmp_path: Path) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say) as server:
        assert keystone(*answer_command(index, tmp_path, server, "run"), *options).returncode == 0
        (submission,) = [path for path in list_submissions(tmp_path / "out/keystone") if path.name.startswith("rag")]
        inputs = ["--topics", topics]
        command = [*map(str, answer_command(index, tmp_path, server)), *map(str, inputs), *options]
        made = keystone(*command, "--out", tmp_path / "answers.jsonl")
    assert made.returncode == 0, made.stderr
    answers, submitted = (path.read_bytes().splitlines() for path in (tmp_path / "answers.jsonl", submission))
    assert sorted(answers) == sorted(submitted), "answers stand in the order in which they are done"


@pytest.mark.parametrize("method", ["answers", "claims"])
def test_a_query_is_answered_from_documents_with_a_grade_for_it(method: str, index: Index, tmp_path: Path) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say) as server:
        settings = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}", f"answer.method={method}"]
        model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
        directory = run(read_config(None, [*settings, model], "keystone"), threads=2)
    records = read_lines(directory / "grades.jsonl")
    graded = {
        (query, doc_id)
        for record in records
        for query, grades in zip(record["queries"], record["grades"], strict=True)
        for doc_id, grade in zip(record["documents"], grades, strict=True)
        if grade
    }
    evidence = [record["items"] for record in read_lines(directory / "evidence.jsonl")]
    read = {(item["query_id"], item["span"]["doc_id"]) for items in evidence for item in items}
    answered = {query for query, _ in graded}
    assert {pair for pair in read if pair[0] in answered} <= graded
    assert len(read & graded) > len(answered), "a query has several documents"


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
    assert "".join(list_remarks(folder)).count("by the last check") == (rounds > 1)
    manifest = orjson.loads((folder / "manifest.json").read_bytes())
    for evidence in read_lines(folder / "evidence.jsonl"):
        shown = {item["span"]["doc_id"] for item in evidence["items"]}
        added = set(evidence.get("added", ()))
        assert added <= shown
        assert len(shown) == 1 + len(added)
        assert bool(added) is bool(evidence.get("checks")) is (rounds > 0)
        assert bool(evidence.get("rechecks")) is (rounds > 1)
        for check in (*evidence.get("checks", ()), *evidence.get("rechecks", ())):
            assert check["found"] == "not" or check["quote"]["doc_id"] in shown
        told = manifest["narratives"][evidence["topic_id"]]
        assert told.get("added_documents", 0) == len(added)
        for kind, key in (("checks", "found"), ("rechecks", "again")):
            levels = {check["query_id"]: check["found"] for check in evidence.get(kind, ())}
            assert {name: own[key] for name, own in told["questions"].items() if key in own} == levels
    for answer in read_lines(folder / "answers.jsonl"):
        *sentences, last = answer["sentences"]
        assert all(sentence["citations"] for sentence in sentences)
        assert (last["text"], last["citations"]) == (answer["missing"], []) or gaps == "false"
    check_submissions(folder, read_topics(topics))


def test_documents_of_a_query_are_ranked_by_grade_then_by_rank() -> None:
    assert rank_by_grade({7: 1, 3: 2, 5: 2, 9: 1}, [5, 7, 3]) == [5, 3, 7, 9]
    assert rank_by_grade({}, [5, 7]) == []
