"""Further rounds of search: which queries have one, what it adds within its budget, and how it is recorded."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import keystone
from keystone.generation.grading.grade import GradedTopic
from keystone.generation.llm.replay import record_replies
from keystone.generation.llm.settings import REPLIES_FILE
from keystone.generation.prompts.queries import SEARCH_AGAIN
from keystone.indexing.index import Index
from keystone.retrieval.types import Query
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.answering import answer_to_file
from keystone.runs.pipeline.file_names import JOINED, ROUNDS
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.stages.rounds import find_open_queries
from keystone.runs.track_rules import TRACKS
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.small_corpus import write_topics
from tests.support.models.plain_model import say
from tests.support.runs.model_runs import read_run_content
from tests.support.servers.chat import Server, serving

GRADES = st.lists(st.lists(st.sampled_from([np.nan, 0.0, 1.0, 1.9, 2.0, 3.0]), min_size=4, max_size=4), max_size=5)


@given(GRADES)
def test_a_query_is_open_until_a_document_has_grade_2(grades: list[list[float]]) -> None:
    queries = [Query("1", str(number), "", "", "") for number in range(len(grades))]
    topic = GradedTopic("1", queries, [], [], np.array(grades).reshape(-1, 4), 0, [], [], [])
    expected = [query for query, own in zip(queries, grades, strict=True) if not any(grade >= 2 for grade in own)]
    assert find_open_queries([topic]) == expected


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(model=say) as found:
        yield found


def list_settings(index: Index, folder: Path, server: Server, *changes: str) -> list[str]:
    return [
        f"index={index.folder}",
        f"topics={write_topics(folder / 'topics.jsonl')}",
        f"out={folder / 'out'}",
        f"model={{name: plain, urls: ['{server.url}'], window: 4096}}",
        "grading.pool=1",
        "queries.narrative_weight=0",
        *changes,
    ]


def make(index: Index, folder: Path, server: Server, *changes: str) -> Path:
    return run(read_config(None, list_settings(index, folder, server, *changes), "keystone"))


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2, 9])
def test_rounds_add_the_documents_of_new_searches_within_their_budget(
    index: Index, tmp_path: Path, server: Server, most: int
) -> None:
    plain = make(index, tmp_path, server)
    before = {one["topic_id"]: one for one in read_lines(plain / "grades.jsonl")}
    hybrid = read_run(plain / "hybrid.trec").list_hits()
    assert not (plain / ROUNDS).exists()
    directory = make(index, tmp_path, server, "grading.rounds=2", f"grading.round_documents={most}")
    rounds, seen = read_lines(directory / ROUNDS), {}
    assert {one["number"] for one in rounds} == {1, 2}
    for after in read_lines(directory / "grades.jsonl"):
        first, own = before[after["topic_id"]], [one for one in rounds if one["topic_id"] == after["topic_id"]]
        added = [doc_id for one in own for doc_id in one["documents"]]
        assert after["documents"] == first["documents"] + added
        assert all(len(one["documents"]) <= most for one in own)
        for query_id, row in zip(first["queries"], first["grades"], strict=True):
            is_open = any(query_id in one["texts"] for one in own if one["number"] == 1)
            assert is_open == (max(grade for grade in row if grade is not None) < 2)
            seen[query_id] = is_open
    assert set(seen.values()) == {True, False}
    joined = read_run(directory / JOINED).list_hits()
    for query_id, is_open in seen.items():
        assert is_open or [doc for doc, _ in joined[query_id]] == [doc for doc, _ in hybrid[query_id]]


@pytest.mark.slow
def test_a_run_with_rounds_is_the_same_from_recorded_replies(index: Index, tmp_path: Path, server: Server) -> None:
    changes = ["grading.rounds=2", "grading.method=pointwise", "queries.passages=hyde"]
    directory = make(index, tmp_path, server, *changes)
    record_replies(tmp_path / "out" / REPLIES_FILE, tmp_path / "replies.jsonl")
    (tmp_path / "again").mkdir()
    replayed = ["model.backend=replay", f"model.replies={tmp_path / 'replies.jsonl'}"]
    again = make(index, tmp_path / "again", server, *changes, *replayed)
    assert read_run_content(again) == read_run_content(directory)
    (again / ROUNDS).unlink()
    assert read_run_content(make(index, tmp_path / "again", server, *changes, *replayed)) == read_run_content(directory)


@pytest.mark.slow
def test_a_model_that_gives_no_search_is_recorded_and_the_grades_stay(index: Index, tmp_path: Path) -> None:
    def refuse(body: dict[str, Any]) -> str:
        return "No." if body["messages"][0]["content"] == SEARCH_AGAIN.system else say(body)

    with serving(model=refuse) as silent:
        plain = read_lines(make(index, tmp_path, silent) / "grades.jsonl")
        directory = make(index, tmp_path, silent, "grading.rounds=1")
    assert read_lines(directory / "grades.jsonl") == plain
    missed = json.loads((directory / "manifest.json").read_bytes())["fallbacks"]
    assert {one["step"] for one in missed} == {"search_again"}


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["null", "{calls: 1000}"])
def test_answers_in_bulk_are_those_of_a_run_with_rounds(
    index: Index, tmp_path: Path, server: Server, budget: str
) -> None:
    settings = list_settings(index, tmp_path, server, "grading.rounds=2", f"model.budget={budget}")
    config = read_config(None, settings, "keystone")
    directory = run(config)
    assert {one["number"] for one in read_lines(directory / ROUNDS)} == {1, 2}
    asked = len(server.requests)
    answer_to_file(config, tmp_path / "answers.jsonl")
    assert len(server.requests) == asked, "the stages of a run ask nothing that the run has not asked"
    found = {one["metadata"]["narrative_id"]: one for one in read_lines(tmp_path / "answers.jsonl")}
    assert found == {
        one["metadata"]["narrative_id"]: one for one in read_lines(directory / TRACKS["rag25"].answer_file)
    }


@pytest.mark.slow
def test_a_ranking_of_the_caller_is_graded_in_rounds(index: Index, tmp_path: Path, server: Server) -> None:
    config = read_config(None, list_settings(index, tmp_path, server, "grading.rounds=1"), "keystone")
    topics = keystone.read_topics(tmp_path / "topics.jsonl")
    found = read_run(make(index, tmp_path, server) / "narrative.trec")
    assert [one.topic_id for one in keystone.answer(index, topics, config, found)] == [one.id for one in topics]
