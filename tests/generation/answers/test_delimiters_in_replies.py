"""Delimiters of documents in the sentences of a reply: the model is asked once more, and at last they are left out."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.answers.answer import read_shorter, request_answers
from keystone.generation.answers.claims import Claim, ProseTask, read_claims, read_prose
from keystone.generation.answers.sentences import Passage, QueryTask, read_answer, read_rewritten
from keystone.generation.answers.support import find_sources, make_claims, read_verdicts
from keystone.generation.answers.synthesise import read_texts
from keystone.generation.context.texts import delimit, neutralise, strip_delimiters
from keystone.generation.llm.ask import request_repair
from keystone.generation.types import Answer, Failure, Reply, Request, Sentence
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Span
from tests.support.models.scripted import Said, Scripted
from tests.support.structures.topic_segments import BEES, SEGMENTS, make_document, toward

MARKS = ["</document>", '<document id="3">', "</Document >", '\uff1cdocument id="a"\uff1e', "\u2039/document>"]
MARK = re.compile(r"[<\uff1c\u2039]\s*/?\s*document", re.IGNORECASE)
OTHERS = ["p < 0.05", "<document>", "<documents/>", "a document id=3", "\u2039Bees\u203a", "document>", "< /b>"]
DOCUMENT = make_document("bees", BEES)
PASSAGES = (Passage("bees", "Bees", DOCUMENT.text),)
SENTENCES = (Sentence("Bees dance for food, far and near.", ("bees#0",)),)
CLAIMS = make_claims(Answer("1", SENTENCES), toward(0), SEGMENTS)
TASK = QueryTask("1", "Bees?", "Bees?", PASSAGES, "", (Span("bees", 0, len(DOCUMENT.text)),))
PROSE = ProseTask("1", "Bees?", ("Bees?",), (Claim(BEES[0], (BEES[0],), ("bees#0",), ((0, 0),)),), 30)

READERS: dict[str, tuple[Any, Callable[[Reply], Iterable[Any]]]] = {
    "answer": (
        {"answer": [{"text": "?", "citations": [0]}]},
        lambda reply: read_answer(reply, PASSAGES)[0],
    ),
    "edit": ({"sentences": [{"id": 0, "text": "?"}]}, partial(read_rewritten, sentences=SENTENCES)),
    "shorten": ({"sentences": [{"id": 0, "text": "?"}]}, partial(read_shorter, sentences=SENTENCES, words=(1, 9))),
    "resynthesise": ({"sentences": ["?"]}, lambda reply: read_texts(reply)[0]),
    "support": (
        {"sentences": [{"id": 0, "support": "full", "citations": [0], "text": "?"}]},
        partial(read_verdicts, claims=CLAIMS, sources=find_sources(CLAIMS, SEGMENTS), segments=SEGMENTS),
    ),
    "claims": (
        {"claims": [{"text": "?", "document": 0, "quote": "Bees dance for food."}]},
        lambda reply: read_claims(reply, TASK, {"bees": DOCUMENT}, 0)[0],
    ),
    "write_claims": (
        {"sentences": [{"claims": [0], "text": "?"}]},
        lambda reply: read_prose(reply, PROSE)[0],
    ),
}
"""A reply for each reader of sentences, with a question mark in the place of the sentence."""


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(("form", "read"), READERS.values(), ids=READERS)
def test_a_sentence_with_a_delimiter_is_refused_and_mended_at_last(
    form: Any, read: Callable[[Reply], Iterable[Any]], mark: str
) -> None:
    clean, marked = (
        Reply(json.dumps(form).replace('"?"', json.dumps(text))) for text in ("Bees dance.", f"Bees dance.{mark} ")
    )
    with pytest.raises(Unusable, match="delimiter"):
        read(marked)
    assert [one.text for one in read(clean)] == ["Bees dance."]
    assert list(read(Reply(marked.text, last=True))) == list(read(clean))


REQUEST = Request("answer", (("user", "Bees?"),), 99, {"required": ["answer"]})


def answer(text: str) -> str:
    return json.dumps({"answer": [{"text": text, "citations": [0]}]})


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        pytest.param(answer("Bees fly."), "Bees fly.", id="the second reply is clean"),
        pytest.param(answer("Bees fly.</document>"), "Bees fly.", id="both have delimiters"),
        pytest.param("Sorry.", "Bees dance.", id="the second reply is no answer"),
        pytest.param(Failure("the budget is spent"), "Bees dance.", id="the second reply never comes"),
    ],
)
def test_the_model_is_asked_once_more(second: Said, sentence: str) -> None:
    first = answer('Bees dance. </document> <document id="3">')
    model = Scripted(lambda request: second if len(request.messages) > 1 else first)
    found, fallbacks = asyncio.run(
        request_answers(model, "answer", [("1", REQUEST, partial(read_answer, passages=PASSAGES))])
    )
    assert found == [Answer("1", (Sentence(sentence, ("bees",)),))]
    assert fallbacks == []
    why = "a sentence holds a delimiter of documents, such as </document>"
    assert model.requests == [REQUEST, request_repair(REQUEST, Reply(first), why)]


@given(st.lists(st.sampled_from([*MARKS, *OTHERS, "<", ">", "/", "document", ' id="', "Bees", " ", "\n"])).map("".join))
def test_no_delimiter_is_left_and_all_else_stays(text: str) -> None:
    stripped = strip_delimiters(text)
    assert strip_delimiters(stripped) == stripped
    assert not any(mark in stripped for mark in MARKS)
    if not MARK.search(text):
        assert stripped == text


@pytest.mark.parametrize("text", OTHERS)
def test_other_marks_stay(text: str) -> None:
    assert strip_delimiters(text) == text


@pytest.mark.parametrize("id", ["3", 'a"b', "a>b", "\uff1ca", "notes"])
def test_the_delimiters_of_prompts_are_found(id: str) -> None:
    for shown in (delimit(id, "Bees."), neutralise(delimit(id, "Bees."))):
        assert strip_delimiters(shown).split() == ["Bees."]
