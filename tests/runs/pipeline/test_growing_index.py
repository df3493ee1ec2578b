"""Runs over a REST server, whose searches find new documents all the time: no ranking lists a document twice.

Each search gives all known documents new rows, so rankings from before and after it must not be compared by rows.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from keystone.indexing.attached.rest_store import adopt_server
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.answering import answer_to_file
from keystone.runs.pipeline.run import run
from keystone.runs.track_rules import TRACKS
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.small_corpus import CORPUS, write_topics
from tests.support.models.reading_model import say
from tests.support.runs.model_runs import read_run_content
from tests.support.servers.chat import Server, serving
from tests.support.servers.rest import Handler, scripted_server

TEXTS = [text for _, text in CORPUS.values()]
NAMES = [f"d{number:03}" for number in range(300)]


def find_some(handler: Handler) -> bool:
    """Find other documents for each query, from all of the corpus, and more of them at a greater depth."""
    asked = dict(parse_qsl(urlsplit(handler.path).query))
    if "query" not in asked:
        return False
    names = random.Random(asked["query"]).sample(NAMES, 60)[: handler.hits()]
    found = [{"docid": n, "score": 9 - i / 64, "doc": {"text": TEXTS[int(n[1:]) % 9]}} for i, n in enumerate(names)]
    handler.reply({"candidates": found})
    return True


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Index]:
    with scripted_server(payloads={}, always=find_some) as server:
        yield adopt_server(Path(f"rest:{server.url}/x"), tmp_path / "remote")[0]


@pytest.fixture(scope="module")
def model() -> Iterator[Server]:
    with serving(model=say) as found:
        yield found


def make(index: Index, folder: Path, *settings: str, preset: str | None = None) -> Path:
    """Make a run whose rankings list no document twice, which `read_run` would refuse."""
    places = [f"index={index.folder}", f"topics={write_topics(folder / 'topics.jsonl')}"]
    defaults = ["run_id=r", "retrieval.depth=8", "fusion.depth=8", "answer.documents=4"]
    directory = run(read_config(None, [*places, *defaults, *settings], preset), threads=2)
    for path in directory.glob("*.trec"):
        read_run(path)
    return directory


TWO_SYSTEMS = "retrieval.systems={few: {kind: bm25, depth: 2}, many: {kind: bm25, depth: 8}}"


@pytest.mark.slow
def test_two_systems_that_find_other_documents_are_fused_by_document(remote: Index, tmp_path: Path) -> None:
    first, again = (make(remote, tmp_path, TWO_SYSTEMS, f"out={tmp_path / out}", "track=none") for out in "ab")
    assert read_run_content(again) == read_run_content(first), "all documents are known before the second run"
    few, many, hybrid = (read_run(first / f"{name}.trec").list_hits() for name in ("few", "many", "hybrid"))
    for query, own in hybrid.items():
        assert {doc for doc, _ in own} == {doc for doc, _ in (*few[query], *many[query])}


@pytest.mark.slow
def test_a_run_over_the_index_is_fused_with_further_searches_and_answered_from(remote: Index, tmp_path: Path) -> None:
    base = make(remote, tmp_path, f"out={tmp_path / 'base'}", "track=none") / "narrative.trec"
    settings = [f"retrieval.runs=[{base}]", "retrieval.depth=30", f"out={tmp_path / 'out'}"]
    directory = make(remote, tmp_path, *settings)
    given = read_run(directory / "given1.trec").list_hits()
    expected = {topic: [doc for doc, _ in own] for topic, own in read_run(base).list_hits().items()}
    assert {topic: [doc for doc, _ in own] for topic, own in given.items() if "#" not in topic} == expected
    answer_to_file(read_config(directory / "config.yaml"), tmp_path / "answers.jsonl", threads=2)
    submitted = (directory / TRACKS["rag25"].answer_file).read_bytes()
    assert sorted((tmp_path / "answers.jsonl").read_bytes().splitlines()) == sorted(submitted.splitlines())


def test_a_run_file_with_documents_that_no_search_has_found_is_refused(remote: Index, tmp_path: Path) -> None:
    (tmp_path / "theirs.trec").write_text("1 Q0 d001 1 2 theirs\n1 Q0 elsewhere 2 1 theirs\n")
    settings = [f"retrieval.runs=[{tmp_path / 'theirs.trec'}]", f"out={tmp_path / 'out'}"]
    with pytest.raises(UserError, match=r"theirs\.trec has 2 lines with a document that no search of .*remote has fou"):
        make(remote, tmp_path, *settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "settings"),
    [
        ("keystone", ["queries.passages=none", "grading.rounds=2", "grading.pool=4", "grading.documents=4"]),
        ("listwise", ["queries.passages=none", "reader={name: agent}", "answer.method=retrieval"]),
        ("listwise", ["queries.passages=query2doc", "answer.method=whole", "answer.rounds=1"]),
    ],
    ids=["rounds", "agent", "passages"],
)
def test_steps_that_search_again_compare_documents_and_not_rows(
    preset: str, settings: list[str], remote: Index, tmp_path: Path, model: Server
) -> None:
    asked = f"model={{name: plain, urls: ['{model.url}'], window: 8192}}"
    first, again = (
        make(remote, tmp_path, asked, *settings, f"out={tmp_path / out}", preset=preset) for out in ("one", "two")
    )
    assert read_run_content(again) == read_run_content(first), "all documents are known before the second run"
