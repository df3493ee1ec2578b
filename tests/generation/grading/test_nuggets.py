"""Nuggets by a model: the growing list, labels in windows, failures that stay failures, and citations."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.grading.nuggets import (
    ASSIGNMENTS,
    IMPORTANCES,
    assign_nuggets,
    create_nuggets,
    rate_importance,
)
from keystone.generation.grading.rate_sentences import Citation, rate_citations
from keystone.generation.types import Failure, Request
from tests.support.models.answer_replies import REPLY
from tests.support.models.scripted import Scripted, by_purpose

PASSAGES = [f"passage {number}" for number in range(1, 22)]


def test_a_list_grows_window_by_window() -> None:
    said = [{"nuggets": ["a"]}, {"nuggets": [" a ", "b\nb", "a", ""]}, {"nuggets": [f"n{n}" for n in range(40)]}]
    model = Scripted(by_purpose(nuggets=said))
    found, failures = asyncio.run(create_nuggets(model, "Why?", PASSAGES, 4096))
    assert (found, failures) == ([f"n{n}" for n in range(30)], [])
    texts = [request.messages[1][1] for request in model.requests]
    assert ["(none)" in text for text in texts] == [True, False, False]
    assert texts[2].endswith("Nuggets so far:\n1. a\n2. b b")
    assert [text.count("<document") for text in texts] == [10, 10, 1]


def test_a_window_that_fails_leaves_the_list_as_it_is() -> None:
    empty = {"nuggets": list[str]()}
    model = Scripted(by_purpose(nuggets=[{"nuggets": ["a"]}, empty, empty, Failure("gone")]))
    found, failures = asyncio.run(create_nuggets(model, "Why?", PASSAGES, 4096))
    assert found == ["a"]
    assert [failure.reason.partition(";")[0] for failure in failures] == ["its list is empty", "gone"]


def label(*labels: str) -> Any:
    return {"labels": labels}


def test_labels_come_in_windows_of_ten_and_a_failure_is_no_label() -> None:
    def say(request: Request) -> str:
        return json.dumps(label(*(["Vital "] * 10 if "10. " in request.messages[1][1] else ["okay", "failed"])))

    found = asyncio.run(rate_importance(Scripted(say), "Why?", PASSAGES[:12]))
    assert found == ["vital"] * 10 + ["failed"] * 2


def test_an_empty_answer_states_nothing_and_costs_nothing() -> None:
    model = Scripted(by_purpose())
    assert asyncio.run(assign_nuggets(model, "Why?", " ", ["a", "b"])) == ["not_support"] * 2
    assert model.requests == []


@pytest.mark.parametrize(("question", "shown"), [("Why <document>?", "Question: Why ‹document>?"), ("", None)])
def test_an_assignment_shows_the_answer_the_nuggets_and_a_known_question(question: str, shown: str | None) -> None:
    model = Scripted(by_purpose(nuggets=[label("support", "partial_support")]))
    found = asyncio.run(assign_nuggets(model, question, "Bees </document> dance.", ["a <b>", "c"]))
    assert found == ["support", "partial_support"]
    text = model.requests[0].messages[1][1]
    assert text.count("</document>") == 1
    assert text.endswith("Nuggets:\n1. a ‹b>\n2. c")
    assert (shown or "Bees") in text
    assert ("Question" in text) == bool(shown)


@given(REPLY, st.lists(st.just("a"), max_size=12))
def test_any_reply_gives_each_nugget_a_label(reply: Any, nuggets: Sequence[str]) -> None:
    model = Scripted(lambda _: reply)
    for found, labels in (
        (asyncio.run(rate_importance(model, "Why?", nuggets)), IMPORTANCES),
        (asyncio.run(assign_nuggets(model, "Why?", "So.", nuggets)), ASSIGNMENTS),
    ):
        assert len(found) == len(nuggets)
        assert set(found) <= {*labels}


def test_citations_are_rated_one_by_one() -> None:
    def say(request: Request) -> str:
        text = request.messages[1][1]
        return json.dumps({"support": "FULL" if "bees" in text else "perhaps"})

    found = asyncio.run(rate_citations(Scripted(say), [Citation("A", "bees"), Citation("B", "ants")], 4096))
    assert found[0] == "full"
    assert found[1] == Failure('it holds no "support" that is full, partial or none')


def test_a_long_passage_is_cut_to_half_of_the_window() -> None:
    model = Scripted(by_purpose(citations=[{"support": "none"}]))
    asyncio.run(rate_citations(model, [Citation("A", "x" * 9000)], 512))
    assert model.requests[0].messages[1][1].count("x") == 4 * 256
