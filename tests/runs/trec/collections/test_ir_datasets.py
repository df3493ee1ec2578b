"""Data sets of ir_datasets as topics and as judgments, by data sets that the tests register in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ir_datasets
import pytest
from ir_datasets.datasets.base import Dataset
from ir_datasets.formats import (
    BaseQrels,
    BaseQueries,
    GenericQrel,
    GenericQuery,
    TrecQrel,
    TrecQuery,
    TrecSubQrel,
)
from ir_datasets.formats.trec import TrecSubtopic

from keystone.indexing.errors import UserError
from keystone.retrieval.types import Topic
from keystone.runs.evaluation.circular import read_judgment_lines
from keystone.runs.exchange.convert import ConversionSettings, convert
from keystone.runs.pipeline.grade_files import Judgment
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.topics import read_topics
from tests.support.runs.qrels import grades_of


class Web(NamedTuple):
    query_id: str
    query: str
    description: str
    subtopics: tuple[Any, ...]

    def default_text(self) -> str:
        return self.query


class Queries(BaseQueries):  # type: ignore[misc]
    def __init__(self, *queries: Any) -> None:
        self.queries = queries

    def queries_iter(self) -> Iterator[Any]:
        for query in self.queries:
            if isinstance(query, Exception):
                raise query
            yield query


class Qrels(BaseQrels):  # type: ignore[misc]
    def __init__(self, *qrels: Any) -> None:
        self.qrels = qrels

    def qrels_iter(self) -> Iterator[Any]:
        yield from self.qrels


@pytest.fixture
def register(request: pytest.FixtureRequest) -> Iterator[Any]:
    name = f"keystone-test/{request.node.name}"

    def add(*parts: Any) -> Path:
        ir_datasets.registry.register(name, Dataset(*parts))
        return Path(f"ir_datasets:{name}")

    yield add
    ir_datasets.registry._registered.pop(name, None)


@pytest.mark.parametrize(
    ("query", "narrative"),
    [
        pytest.param(GenericQuery("1", " Why? "), "Why?", id="a text"),
        pytest.param(TrecQuery("1", "bees", "Why?", "A page"), "bees\n\nWhy?\n\nA page", id="a topic of TREC"),
        pytest.param(TrecQuery("1", "bees", "", "bees"), "bees", id="no paragraph twice"),
        pytest.param(Web("1", "bees", "Why?", ("a", "b")), "bees\n\nWhy?", id="a query of the Web track"),
    ],
)
def test_the_narrative_of_a_query(register: Any, query: Any, narrative: str) -> None:
    (topic,) = read_topics(register(Queries(query)))
    assert topic == Topic("1", narrative)
    assert topic.place.endswith(": query 1")


def test_the_subtopics_of_a_query_are_kept(register: Any, tmp_path: Path) -> None:
    path = register(Queries(Web("1", "bees", "Why?", (TrecSubtopic("1", "colours", "inf"),))))
    convert(path, tmp_path / "topics.jsonl", ConversionSettings("topics", "topics", strict=True))
    (topic,) = read_topics(tmp_path / "topics.jsonl")
    assert topic.record["subtopics"] == [{"number": "1", "text": "colours", "type": "inf"}]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        pytest.param(GenericQuery("a b", "x"), "query 1: query_id: expected an id without space", id="a space"),
        pytest.param(GenericQuery("1", " "), "query 1: text: expected a narrative", id="no text"),
        pytest.param(OSError("no route"), "ir_datasets could not read it: OSError: no route", id="no download"),
    ],
)
def test_a_query_that_is_no_topic_is_refused(register: Any, query: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_topics(register(Queries(query)))


@pytest.mark.parametrize(
    ("qrels", "column"),
    [
        pytest.param([GenericQrel("1", "a", 2), GenericQrel("1", "b", 0)], ["0", "0"], id="plain"),
        pytest.param([TrecQrel("1", "a", 2, "Q0"), TrecQrel("1", "b", 0, "Q0")], ["Q0", "Q0"], id="iteration"),
        pytest.param([TrecSubQrel("1", "a", 2, "3"), TrecSubQrel("1", "b", 0, "4")], ["3", "4"], id="subtopics"),
    ],
)
def test_judgments_are_those_of_a_file_with_the_same_rows(
    register: Any, tmp_path: Path, qrels: list[Any], column: list[str]
) -> None:
    path = register(Qrels(*qrels))
    rows = [Judgment("1", second, one.doc_id, one.relevance) for second, one in zip(column, qrels, strict=True)]
    (tmp_path / "qrels").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    found, expected = read_qrels(path), read_qrels(tmp_path / "qrels")
    assert grades_of(found) == grades_of(expected) == {"1": {"a": 2, "b": 0}}
    assert (found.subtopics is None) == (expected.subtopics is None)
    assert read_judgment_lines(path) == set(rows)


def test_an_id_with_a_space_is_refused(register: Any) -> None:
    path = register(Qrels(GenericQrel("1", "a", 1), GenericQrel("1", "a b", 1)))
    with pytest.raises(UserError, match=r"judgment 2: expected an id without space, found '1 0 a b 1'"):
        read_qrels(path)


def test_a_missing_part_and_an_unknown_id_are_named(register: Any) -> None:
    with pytest.raises(UserError, match="expected a data set with judgments, found one without"):
        read_qrels(register(Queries(GenericQuery("1", "x"))))
    for read in (read_topics, read_qrels):
        with pytest.raises(UserError, match="ir_datasets knows no such data set"):
            read(Path("ir_datasets:nowhere/none"))
