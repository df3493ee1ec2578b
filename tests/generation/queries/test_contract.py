"""What a narrative asks for, by one reply: questions with their form, weight and terms, and the topic."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given

from keystone.generation.prompts.queries import MOST_TERMS
from keystone.generation.queries.compose import compose_queries
from keystone.generation.queries.understand import keep_held_terms, read_contract, understand_by_contract
from keystone.generation.types import Reply, Request, Understanding
from keystone.indexing.errors import Unusable
from keystone.retrieval.types import Ask, Topic
from tests.support.models.answer_replies import JSON
from tests.support.models.scripted import Scripted

TOPIC = Topic("7", "How do bees find food, and which dances tell others where the flowers are?")


def ask(question: Any = "How do bees find food?", form: Any = "steps", weight: Any = 2, terms: Any = ()) -> Any:
    return {"question": question, "form": form, "weight": weight, "terms": terms if terms != () else []}


def read(*items: Any, topic: Any = "bees") -> Understanding:
    return read_contract(Reply(json.dumps({"topic": topic, "questions": list(items)})), TOPIC)


def test_a_reply_gives_questions_with_what_they_want() -> None:
    found = read(ask(terms=["foraging"]), ask("1. which dances are there", "list", 3, ["waggle dance", "round dance"]))
    assert found == Understanding(
        "7",
        ("How do bees find food?", "Which dances are there"),
        "bees",
        asks=(Ask("steps", 2, ("foraging",)), Ask("list", 3, ("waggle dance", "round dance"))),
    )


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param(ask(weight=9), Ask("steps", 3), id="a weight too high"),
        pytest.param(ask(weight=-1), Ask("steps", 1), id="a weight too low"),
        pytest.param(ask(weight="much"), Ask("steps", 1), id="no weight"),
        pytest.param(ask(terms="dance"), Ask("steps", 2), id="no list of terms"),
        pytest.param(ask(terms=["Find Food", 3, "", "the", "a b c d e f g"]), Ask("steps", 2), id="unusable terms"),
        pytest.param(
            ask(terms=["Waggle", "waggle", "x1", "x2", "x3", "x4"]),
            Ask("steps", 2, ("Waggle", "x1", "x2", "x3")),
            id="distinct terms, four at most",
        ),
    ],
)
def test_weights_and_terms_are_put_right(item: Any, expected: Ask) -> None:
    assert MOST_TERMS == 4
    assert read(item).asks == (expected,)


@pytest.mark.parametrize(
    "items",
    [
        pytest.param((), id="no question"),
        pytest.param((ask("?!"),), id="a question without a word"),
        pytest.param((ask(7),), id="a question that is no text"),
        pytest.param((ask(form="poem"),), id="an unknown form"),
        pytest.param(("How do bees find food?",), id="no objects"),
        pytest.param(tuple(ask(f"What is bee {n}?") for n in range(101)), id="too many questions"),
    ],
)
def test_a_reply_without_usable_questions_is_refused(items: tuple[Any, ...]) -> None:
    with pytest.raises(Unusable):
        read(*items)


def test_equal_questions_are_one() -> None:
    assert read(ask("What is a bee?"), ask("what is a BEE ")).questions == ("What is a bee?",)


@pytest.mark.parametrize("topic", [None, "", "wasps and ants", ["bees"]])
def test_rules_extract_the_topic_if_the_reply_has_none_of_the_narrative(topic: Any) -> None:
    assert set(read(ask(), topic=topic).topic.split()) <= set(TOPIC.narrative.replace(",", "").split())


@given(JSON)
def test_no_reply_raises_anything_but_a_refusal(value: Any) -> None:
    try:
        found = read_contract(Reply(json.dumps(value)), TOPIC)
    except Unusable:
        return
    assert len(found.questions) == len(found.asks) > 0


def test_terms_that_the_corpus_lacks_are_dropped() -> None:
    found = [read(ask(terms=["waggle dance", "pheromone"])), read(ask(terms=["pheromone"]))]
    asked: list[list[str]] = []

    def holds(terms: Any) -> list[bool]:
        asked.append(list(terms))
        return [term != "pheromone" for term in terms]

    assert [one.asks[0].terms for one in keep_held_terms(found, holds)] == [("waggle dance",), ()]
    assert asked == [["pheromone", "waggle dance"]]


def test_the_terms_join_the_texts_of_their_question_alone() -> None:
    understood = read(ask(terms=["foraging"]), ask("Which dances are there?"))
    first, second = compose_queries(understood, question_weight=2, dense_topic=False)
    assert first.sparse_text == "How do bees find food? How do bees find food? foraging bees"
    assert first.dense_text == "How do bees find food? foraging"
    assert (second.dense_text, second.ask) == ("Which dances are there?", Ask("steps", 2))


def test_one_call_a_narrative_and_the_narrative_itself_if_that_fails() -> None:
    def say(request: Request) -> str:
        return json.dumps({"topic": "bees", "questions": [ask()]}) if "bees" in request.messages[1][1] else "no"

    model = Scripted(say)
    found, fallbacks = asyncio.run(understand_by_contract(model, [TOPIC, Topic("8", "What do ants eat?")]))
    assert [one.questions for one in found] == [("How do bees find food?",), ("What do ants eat?",)]
    assert found[1].asks == ()
    assert [(one.topic_id, one.step) for one in fallbacks] == [("8", "contract")]
    assert [request.purpose for request in model.requests] == ["contract", "contract", "contract"]
