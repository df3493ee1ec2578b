"""What a diagnosis says of the questions of a contract: how far documents answer them, and the fates of the others."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import keystone
from keystone.generation.types import Answered
from keystone.indexing.index import Index
from keystone.indexing.io.writing import write_json_lines
from keystone.retrieval.types import Ask, Query
from keystone.runs.config.read import read_config
from keystone.runs.evaluation.diagnosis.questions import QuestionFinding, count_levels, list_open, tell_losses
from keystone.runs.pipeline.questions import ReadQuestion
from keystone.runs.pipeline.run import run
from keystone.runs.trec.run_files import write_run
from keystone.runs.trec.types import make_run
from tests.support.indexes.small_corpus import write_topics
from tests.support.runs.command_line import keystone_here

LOSSES = {"queries": "cut by the fusion of queries", "read": "not in the evidence", "used": "not used"}
TOLD = "have no document that answers them in full"
UNCHECKED = "which count as open if nothing was read for them"


def make(
    name: str, weight: int, found: Answered | None, losses: dict[str | None, int], documents: int = 1, again: Any = None
) -> QuestionFinding:
    query = Query(name.partition("#")[0], name, "Why?", "why", "why", ask=Ask("reasons", weight))
    return QuestionFinding(ReadQuestion(query, found, again, documents, 9 * documents), losses)


QUESTIONS = [
    make("1#1", 1, "partly", {"queries": 2, "used": 3}),
    make("1#2", 3, "not", {}, documents=0),
    make("1#3", 2, "answered", {"read": 5, None: 1}),
    make("2#1", 2, "partly", {"used": 1, None: 4}),
    make("2#2", 1, None, {"read": 1}, documents=0),
    make("2#3", 1, None, {None: 1}),
]


def test_levels_count_questions_and_their_weight() -> None:
    found = count_levels(QUESTIONS)
    assert found["partly"] == {"number": 2, "weight": 0.3, "unread": 0, "wanted": 10, "lost": 6}
    assert found["not"] == {"number": 1, "weight": 0.3, "unread": 1, "wanted": 0, "lost": 0}
    assert [(level, own["number"]) for level, own in found.items()] == [
        ("answered", 1),
        ("partly", 2),
        ("not", 1),
        ("unchecked", 2),
    ]
    again = count_levels([make("1#1", 1, "not", {}, again="answered"), make("1#2", 3, "partly", {})])
    assert {level: (own["before"], own["number"], own["weight"]) for level, own in again.items()} == {
        "answered": (0, 1, 0.25),
        "partly": (1, 1, 0.75),
        "not": (1, 0, 0),
    }


def test_open_questions_are_listed_by_weight() -> None:
    found = list_open([*QUESTIONS, make("3#1", 9, "not", {}, again="answered")])
    assert [one.question.query.id for one in found] == ["1#2", "2#1", "1#1", "2#2"]


def test_the_fates_of_open_questions_are_told_with_what_lost_most() -> None:
    assert tell_losses(QUESTIONS, LOSSES, "nugget") == [
        f"4 of 6 questions, 70.0% of the weight, {TOLD}; nobody checked 2, {UNCHECKED}",
        "2 of them lost nuggets before the writer read them, most at queries (cut by the fusion of queries)",
        "1 of them had no nugget that their own searches rank highest",
        "1 of them had all their nuggets read",
    ]
    assert tell_losses([QUESTIONS[2]], LOSSES, "nugget") == ["no question of 1 is open"]
    assert tell_losses([QUESTIONS[5]], LOSSES, "nugget") == [f"no question of 1 is open; nobody checked 1, {UNCHECKED}"]


@pytest.fixture(scope="module")
def plain(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    topics = write_topics(folder / "topics.jsonl")
    places = ["run_id=run", f"index={index.folder}", f"topics={topics}", f"out={folder / 'out'}"]
    return run(read_config(None, [*places, "queries.facets=clauses"]), threads=2)


def edit(directory: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    records = [orjson.loads(line) for line in (directory / f"{name}.jsonl").read_bytes().splitlines()]
    for record in records:
        change(record)
    write_json_lines(directory / f"{name}.jsonl", records)


def diagnose_by_command(directory: Path, qrels: Path, *options: str) -> str:
    done = keystone_here("diagnose", directory, "--qrels", qrels, *options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def qrels(tmp_path: Path) -> Path:
    (tmp_path / "qrels").write_text("1 0 bees 1\n1 0 beekeeping 1\n2 0 volcano 1\n")
    return tmp_path / "qrels"


def test_a_run_without_a_contract_tells_nothing_of_questions(plain: Path, qrels: Path) -> None:
    assert "question" not in diagnose_by_command(plain, qrels)
    assert "questions" not in json.loads(diagnose_by_command(plain, qrels, "--json"))["result"]


def test_a_contract_is_counted_by_its_questions(plain: Path, qrels: Path, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    shutil.copytree(plain, directory)

    def ask(record: dict[str, Any]) -> None:
        for place, query in enumerate(record["queries"]):
            if query["id"] != query["topic_id"]:
                query["ask"] = {"form": "list", "weight": place, "terms": []}

    def check(record: dict[str, Any]) -> None:
        if record["topic_id"] == "1":
            record["checks"] = [{"query_id": "1#1", "found": "not"}, {"query_id": "1#2", "found": "partly"}]
            record["rechecks"] = [{"query_id": "1#1", "found": "partly"}, {"query_id": "1#2", "found": "answered"}]

    edit(directory, "queries", ask)
    edit(directory, "evidence", check)
    lists = {"1": ["bees", "beekeeping"], "1#1": ["wasps", "bees", "beekeeping"], "1#2": ["beekeeping", "bees"]}
    ranked = {name: [(doc, -float(n)) for n, doc in enumerate(docs)] for name, docs in lists.items()}
    for name in ("bm25", "dense"):
        write_run(directory / f"{name}.trec", make_run("run", ranked))
    found = keystone.diagnose(directory, qrels=qrels)
    first, second, *_ = found.questions
    assert [sum(one.losses.values()) for one in (first, second)] == [0, 2], "at equal ranks the heavier one counts"
    assert (first.question.level, first.question.weight, first.is_open) == ("partly", 1, True)
    assert (second.question.level, second.question.weight, second.is_open) == ("answered", 2, False)
    (tmp_path / "fewer").write_text("1 0 bees 1\n")
    fewer = keystone.diagnose(directory, qrels=tmp_path / "fewer").questions
    assert {one.question.query.topic_id for one in fewer} == {"1"}, "without judgments, nobody knows what was lost"
    told = diagnose_by_command(directory, qrels)
    assert told.splitlines() == str(found).splitlines()
    assert f"2 of {len(found.questions)} questions" in told
    assert "1#3 unchecked, 1#1 partly" in told, "nothing was read for 1#3"
    assert "2 of them had no relevant document that their own searches rank highest" in told
    described = json.loads(diagnose_by_command(directory, qrels, "--json"))["result"]["questions"]
    assert described["levels"]["answered"]["before"] == 0
    assert described["fates"][0] in told
    assert [(one["id"], one["found"], one["again"], one["open"]) for one in described["findings"][:2]] == [
        ("1#1", "not", "partly", True),
        ("1#2", "partly", "answered", False),
    ]
