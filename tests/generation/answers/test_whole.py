"""Answers written freely from whole documents, and the check of these documents before they are written."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from keystone.generation.answers.answer import (
    AnswerTask,
    check_evidence,
    draft_answer,
    read_check,
    request_check,
    request_whole,
)
from keystone.generation.answers.sentences import read_answer
from keystone.generation.types import Failure, QuestionCheck, Reply, Sentence
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document, Span
from keystone.retrieval.types import Ask, Query
from tests.support.models.answer_replies import ANTS, BEES, JSON
from tests.support.models.scripted import Scripted

QUERIES = (
    Query("1", "1#1", "How do bees find food?", "", "", ask=Ask("steps", 2)),
    Query("1", "1#2", "Where do ants walk?", "", ""),
)
TASK = AnswerTask("1", "How do bees find food, and where do ants walk?", (BEES, ANTS), (10, 40), queries=QUERIES)
DOCUMENTS = {
    "bees": Document("bees", "Bees dance to tell each other where food is."),
    "ants": Document("ants", "Ants walk along the edge of the forest."),
}
SPANS = [Span(document.id, 0, len(document.text)) for document in DOCUMENTS.values()]


def answer(*items: dict[str, Any], missing: Any = "") -> Reply:
    return Reply(json.dumps({"answer": list(items), "missing": missing}))


def check(*items: tuple[Any, Any, Any, Any, Any]) -> Reply:
    keys = ("id", "found", "document", "quote", "searches")
    return Reply(json.dumps({"questions": [dict(zip(keys, item, strict=True)) for item in items]}))


def test_the_check_shows_the_questions_after_the_documents_and_the_answer_is_written_without_them() -> None:
    checked, written = (make(TASK).messages[1][1] for make in (request_check, request_whole))
    asked = '{"id": 0, "question": "How do bees find food?", "wants": "steps"}'
    assert checked.index("Bees dance.") < checked.index(asked)
    assert '{"id": 1, "question": "Where do ants walk?"}' in checked
    assert '"question"' not in written


def test_an_answer_is_asked_for_gaps_where_they_come_up_or_for_none() -> None:
    told, untold = (request_whole(replace(TASK, gaps=gaps)).messages[1][1] for gaps in (True, False))
    assert "in the sentence that comes nearest to it" in told
    assert "No sentence says what the documents lack." in untold
    assert [text.count("`missing` names it in one sentence") for text in (told, untold)] == [1, 1]


def test_the_check_and_the_answer_begin_alike_so_that_servers_read_the_documents_once() -> None:
    (system, checked), (same, written) = request_check(TASK).messages, request_whole(TASK).messages
    assert system == same
    shared = next(place for place, (a, b) in enumerate(zip(checked[1], written[1], strict=False)) if a != b)
    assert shared > written[1].index("Ants walk.")


@given(JSON)
def test_no_reply_raises_anything_but_a_refusal(value: Any) -> None:
    for read in (
        lambda reply: read_answer(reply, TASK.passages),
        lambda reply: read_check(reply, TASK, DOCUMENTS, SPANS),
    ):
        for reply in (Reply(json.dumps(value)), Reply(json.dumps({"answer": value, "questions": value}))):
            try:
                read(reply)
            except Unusable:
                continue


def test_empty_sentences_are_left_out() -> None:
    items = ({"text": " "}, {"text": "Ants walk.", "citations": [1]})
    (sentence,), missing = read_answer(answer(*items), TASK.passages)
    assert (sentence.text, sentence.citations, missing) == ("Ants walk.", ("ants",), "")


QUOTE = "Bees dance to tell each other"


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param(("answered", 0, QUOTE, []), QuestionCheck("1#1", "answered", Span("bees", 0, len(QUOTE))),
                     id="a quote that stands there"),
        pytest.param(("answered", 1, QUOTE, []), QuestionCheck("1#1", "not"), id="a quote of another document"),
        pytest.param(("partly", 0, "Bees sing to tell each other", ["bee song"]),
                     QuestionCheck("1#1", "not", None, ("bee song",)), id="an invented quote"),
        pytest.param(("not", -1, "", ["a", "b", "a", "c"]), QuestionCheck("1#1", "not", None, ("a", "b")),
                     id="two distinct searches at most"),
        pytest.param(("not", 0, QUOTE, ["?!", 7]), QuestionCheck("1#1", "not"), id="a quote for nothing"),
        pytest.param(("answered", 9, QUOTE, None), QuestionCheck("1#1", "not"), id="an unknown document"),
    ],
)  # fmt: skip
def test_a_question_is_answered_only_by_words_that_stand_there(item: tuple[Any, ...], expected: QuestionCheck) -> None:
    reply = check((0, *item), (1, "not", -1, "", []))
    assert read_check(reply, TASK, DOCUMENTS, SPANS)[0] == expected


@pytest.mark.parametrize(
    "items",
    [
        pytest.param(((0, "not", -1, "", []),), id="a question is missing"),
        pytest.param(((0, "not", -1, "", []), (0, "not", -1, "", [])), id="a question twice"),
        pytest.param(((0, "not", -1, "", []), (1, "perhaps", -1, "", [])), id="an unknown level"),
        pytest.param(((0, "not", -1, "", []), (2, "not", -1, "", [])), id="an unknown question"),
    ],
)
def test_an_incomplete_check_is_refused(items: Any) -> None:
    with pytest.raises(Unusable):
        read_check(check(*items), TASK, DOCUMENTS, SPANS)


def test_without_a_usable_check_nothing_is_checked_and_that_is_recorded() -> None:
    found, fallbacks = asyncio.run(check_evidence(Scripted(lambda _: Failure("down")), TASK, DOCUMENTS, SPANS))
    assert (found, [(one.step, one.reason) for one in fallbacks]) == (
        (),
        [("check", "down: no question was searched again")],
    )


def test_an_answer_keeps_what_is_missing_and_drops_nothing_else() -> None:
    said = answer({"text": "Bees dance.", "citations": [0]}, missing=" The sources name no price. ")
    made, fallbacks = asyncio.run(draft_answer(Scripted(lambda _: said.text), TASK, request_whole))
    assert made is not None
    assert (made.missing, [one.text for one in made.sentences]) == ("The sources name no price.", ["Bees dance."])
    assert fallbacks == []


def test_what_is_missing_comes_from_the_version_that_counts() -> None:
    versions = (answer({"text": text}, missing=missing).text for text, missing in (("A.", "No price."), ("B.", None)))
    assert read_answer(Reply("\n".join(versions)), TASK.passages) == ((Sentence("B.", ()),), "")


def test_without_documents_the_model_is_not_asked() -> None:
    model = Scripted(lambda _: Failure("down"))
    made, fallbacks = asyncio.run(draft_answer(model, AnswerTask("1", "Why?", (), (1, 9)), request_whole))
    assert (made, model.requests, len(fallbacks)) == (None, [], 1)
