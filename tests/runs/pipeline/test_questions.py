"""What the manifest says of the questions of a narrative: how far they are answered, and what was read for each."""

import re
from pathlib import Path

import orjson

from keystone.generation.types import Evidence, EvidenceSet, QuestionCheck
from keystone.indexing.index import Index
from keystone.indexing.types import Span
from keystone.retrieval.types import Ask, Query
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.manifest import list_remarks
from keystone.runs.pipeline.questions import ReadQuestion, list_read_questions
from keystone.runs.pipeline.run import run
from tests.support.indexes.small_corpus import write_topics


def ask(name: str, weight: int = 0) -> Query:
    return Query("1", name, "Why?", "why", "why", ask=Ask("reasons", weight) if weight else None)


def test_a_question_counts_what_serves_it_and_what_answers_it_by_the_last_check() -> None:
    queries = [ask("1"), ask("1#1", 3), ask("1#2"), ask("1#3", 2)]
    texts = [("a", 0, "1#1"), ("a", 40, "1#1"), ("b", 0, "1#1"), ("c", 0, "1")]
    items = tuple(Evidence(Span(doc, at, at + 8), "12345678", 1.0, query) for doc, at, query in texts)
    evidence = EvidenceSet(
        items,
        checks=(QuestionCheck("1#1", "partly"), QuestionCheck("1#2", "answered", Span("c", 3, 5))),
        rechecks=(QuestionCheck("1#1", "answered", Span("a", 1, 2)),),
    )
    found = list_read_questions(queries, evidence)
    assert found == [
        ReadQuestion(queries[1], "partly", "answered", 2, 6),
        ReadQuestion(queries[2], "answered", None, 1, 2),
        ReadQuestion(queries[3], None, None, 0, 0),
    ]
    assert [(one.level, one.weight) for one in found] == [("answered", 3), ("answered", 1), (None, 2)]


def test_a_narrative_is_its_only_question() -> None:
    (found,) = list_read_questions([ask("1")], EvidenceSet((Evidence(Span("a", 0, 1), "x", 1.0, "1"),)))
    assert (found.query.id, found.documents, found.tokens) == ("1", 1, 1)


def test_the_manifest_of_a_run_by_rules_tells_what_was_read_and_which_answers_have_gaps(
    index: Index, tmp_path: Path
) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    topics.write_text(f'{topics.read_text()}{{"id": "3", "text": "How do bees live? How is quantum chess played?"}}\n')
    with topics.open("a") as file:
        file.write('{"id": "4", "text": "How is quantum chess played on Mars?"}\n')
    places = ["run_id=run", f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}"]
    directory = run(read_config(None, places), threads=2)
    manifest = orjson.loads((directory / "manifest.json").read_bytes())
    evidence, answers = (
        [orjson.loads(line) for line in (directory / f"{name}.jsonl").read_bytes().splitlines()]
        for name in ("evidence", "answers")
    )
    told = {answer["topic_id"] for answer in answers if answer.get("missing")}
    assert "3" in told
    assert [answer["sentences"][0]["citations"] for answer in answers if answer["topic_id"] == "4"] == [[]]
    gaps = {*told, "4"}
    assert manifest["questions"] == {"answers_with_gaps": len(gaps)}
    assert {topic for topic, own in manifest["narratives"].items() if own.get("gap")} == gaps
    for record in evidence:
        for query_id, own in manifest["narratives"][record["topic_id"]]["questions"].items():
            read = {item["span"]["doc_id"] for item in record["items"] if item["query_id"] == query_id}
            assert (own["documents"], own["tokens"] > 0) == (len(read), bool(read))
    lines = (directory / "manifest.json").read_text().splitlines()
    assert sum('"tokens"' in line for line in lines) == len(evidence), "a narrative has one line"
    assert any(re.fullmatch(r"questions: \d answers? with gaps", remark) for remark in list_remarks(directory))


def test_the_check_of_an_agent_comes_after_its_searches(index: Index, tmp_path: Path) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    places = ["run_id=run", f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}", "reader.name=agent"]
    (told,) = list_remarks(run(read_config(None, places), threads=2))
    assert re.fullmatch(r"questions: \d answered, \d partly, \d not; \d answers? with gaps", told)
