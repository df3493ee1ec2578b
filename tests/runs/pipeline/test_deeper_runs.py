"""Runs that grade beyond the pool: within their limit, with neighbours, and for the narrative itself."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.vectors.of_documents import document_vectors
from keystone.retrieval.backends import open_dense, open_store
from keystone.retrieval.faiss_search import find_neighbours
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.answering import answer_to_file
from keystone.runs.pipeline.run import run
from keystone.runs.track_rules import TRACKS
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES, write_corpus, write_topics
from tests.support.models.plain_model import say
from tests.support.runs.model_runs import read_run_content
from tests.support.servers.chat import Server, serving


def list_settings(index: Index, folder: Path, url: str, *changes: str) -> list[str]:
    folder.mkdir(exist_ok=True)
    places = [f"index={index.folder}", f"topics={write_topics(folder / 'topics.jsonl')}", f"out={folder / 'out'}"]
    model = f"model={{name: plain, urls: ['{url}'], window: 4096}}"
    return ["run_id=deep", *places, model, "fusion.depth=9", "answer.documents=3", "grading.documents=3", *changes]


def grade(index: Index, folder: Path, server: Server, **grading: Any) -> dict[str, dict[str, Any]]:
    settings = [f"grading.{key}={value}" for key, value in ({"method": "grid", "pool": 1} | grading).items()]
    directory = run(read_config(None, list_settings(index, folder, server.url, *settings)), threads=2)
    lines = (directory / "grades.jsonl").read_bytes().splitlines()
    return {one["topic_id"]: one for one in map(orjson.loads, lines)}


@pytest.mark.slow
def test_grading_goes_down_the_ranking_to_its_limit(index: Index, tmp_path: Path) -> None:
    with serving(model=say) as server:
        pool = grade(index, tmp_path / "pool", server)
        some = grade(index, tmp_path / "some", server, deeper=2)
        every = grade(index, tmp_path / "all", server, deeper=50)
        by_pairs = grade(index, tmp_path / "pairs", server, deeper=50, method="pointwise")
        whole = grade(index, tmp_path / "whole", server, pool=9)
    for topic in NARRATIVES:
        first = pool[topic]["documents"]
        assert some[topic]["documents"][: len(first)] == first
        assert len(some[topic]["documents"]) == len(first) + 2
        assert some[topic]["pairs"] == len(some[topic]["queries"]) * len(some[topic]["documents"])
        assert set(every[topic]["documents"]) == set(CORPUS)
        assert every[topic]["selected"] == by_pairs[topic]["selected"]
        assert every[topic]["scores"] == whole[topic]["scores"], "equal scores may be of other documents"


@pytest.mark.slow
@pytest.mark.parametrize("select", ["parasol", "coverage"])
def test_run_and_answer_choose_the_same_documents_and_a_repeated_run_asks_nothing(
    select: str, index: Index, tmp_path: Path
) -> None:
    grading = f"grading={{method: grid, pool: 1, deeper: 4, neighbours: 2, narrative: true, select: {select}}}"
    with serving(model=say) as server:
        settings = list_settings(index, tmp_path, server.url, grading, "grading.documents=3")
        config = read_config(None, settings)
        directory = run(config, threads=2)
        before, asked = read_run_content(directory), len(server.requests)
        assert read_run_content(run(read_config(None, [*settings, f"out={tmp_path / 'out'}"]), threads=1)) == before
        answer_to_file(config, tmp_path / "answers.jsonl")
        assert len(server.requests) == asked
    made = [orjson.loads(line)["answer"] for line in (tmp_path / "answers.jsonl").read_bytes().splitlines()]
    lines = (directory / TRACKS["rag25"].answer_file).read_bytes().splitlines()
    assert sorted(map(orjson.dumps, made)) == sorted(orjson.dumps(orjson.loads(line)["answer"]) for line in lines)


def test_the_nearest_documents_are_those_of_a_plain_search(index: Index) -> None:
    store, dense = open_store(index), open_dense(index)
    rows = store.rows(["bees", "twin-a"]).tolist()
    found = find_neighbours(dense, rows, document_vectors(index, store, rows), 3)
    assert store.ids(found[0])[:1] == ["beekeeping"]
    assert store.ids(found[1])[:1] == ["twin-b"]
    for row, near in zip(rows, found, strict=True):
        assert len(near) == 3
        assert row not in near


@pytest.mark.slow
def test_the_narrative_is_one_of_the_graded_queries(index: Index, tmp_path: Path) -> None:
    with serving(model=say) as server:
        without, found = grade(index, tmp_path / "without", server), grade(index, tmp_path, server, narrative="true")
    for topic in NARRATIVES:
        assert found[topic]["queries"] == [topic, *without[topic]["queries"]]
    judged = (tmp_path / "out/deep/grades.qrels").read_text()
    assert len(re.findall(r"(?m)^1 ", judged)) == len(found["1"]["documents"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["grading.neighbours=3"], "grading.neighbours: found 3 with grading.deeper 0"),
        (["grading.narrative=true", "queries.narrative_weight=0"], "grading.narrative: found true with"),
        (["grading.deeper=-1"], "grading.deeper: found -1"),
    ],
)
def test_impossible_settings_are_user_errors(index: Index, tmp_path: Path, changes: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_config(None, list_settings(index, tmp_path, "http://localhost:1", *changes))


def test_neighbours_without_vectors_of_all_documents_are_a_user_error(tmp_path: Path) -> None:
    settings = BuildSettings(threads=2, faiss=None)
    pooled = build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", settings)[0]
    changes = ["grading.method=grid", "grading.deeper=5", "grading.neighbours=3"]
    with pytest.raises(UserError, match=r"grading\.neighbours: found 3 for .*index, which has no vectors of all"):
        run(read_config(None, list_settings(pooled, tmp_path / "run", "http://localhost:1", *changes)))
