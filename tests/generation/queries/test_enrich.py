"""Passages that a model writes for queries: the requests, the replies that can be used, and the records of failures."""

import asyncio
from dataclasses import replace

import pytest

from keystone.generation.queries.enrich import read_passage, write_passages
from keystone.generation.types import Failure, Reply
from keystone.indexing.errors import Unusable
from keystone.retrieval.types import Query
from tests.support.models.scripted import Scripted, by_purpose

NARRATIVE = "I keep bees. How do they dance, and why?"
QUERIES = [
    Query("7", "7", NARRATIVE, NARRATIVE, NARRATIVE),
    Query("7", "7#1", "How do bees dance?", "How do bees dance? bees", "How do bees dance?"),
]


def test_each_query_has_the_passage_of_its_own_request() -> None:
    model = Scripted(lambda request: "Whole." if request.messages[1][1].endswith("as a whole") else "Part.")
    written, fallbacks = asyncio.run(write_passages(model, QUERIES, {"7": NARRATIVE}))
    assert written == [replace(QUERIES[0], passage="Whole."), replace(QUERIES[1], passage="Part.")]
    assert not fallbacks
    shown = [request.messages[1][1] for request in model.requests]
    assert all(NARRATIVE in user for user in shown)
    assert ["How do bees dance?" in user for user in shown] == [False, True]


@pytest.mark.parametrize(
    ("replies", "passage", "missing"),
    [
        pytest.param(["Bees\n dance."], "Bees dance.", False, id="lines become one"),
        pytest.param(["<think>Hm.</think> Bees dance."], "Bees dance.", False, id="thoughts are left out"),
        pytest.param([Reply("Bees dance in", finish="length")], "Bees dance in", False, id="a cut passage is used"),
        pytest.param([" \n", "Bees dance."], "Bees dance.", False, id="a repair after an empty passage"),
        pytest.param([" \n"], "", True, id="two empty passages"),
        pytest.param([Failure("gone")], "", True, id="no reply"),
    ],
)
def test_a_query_without_a_usable_passage_stays_and_is_recorded(
    replies: list[object], passage: str, missing: bool
) -> None:
    (written,), fallbacks = asyncio.run(
        write_passages(Scripted(by_purpose(passage=replies)), QUERIES[1:], {"7": NARRATIVE})
    )
    assert written == replace(QUERIES[1], passage=passage)
    assert [(one.topic_id, one.step) for one in fallbacks] == [("7", "passage")] * missing
    assert all("7#1" in one.reason for one in fallbacks)


def test_the_reason_of_a_refusal_is_told() -> None:
    with pytest.raises(Unusable, match="holds no passage"):
        read_passage(Reply("<think>only thoughts"))
