"""Claims for queries: the request, its replies, and promises that no model can break."""

import asyncio
import json
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.answers.claims import (
    MOST_CLAIMS,
    Claim,
    answer_from_claims,
    collect_claims,
    make_claims_of_notes,
    read_claims,
    request_claims,
)
from keystone.generation.answers.sentences import Passage, QueryTask
from keystone.generation.types import Failure, Fallback, Reply
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document, Segment, Span
from tests.support.models.answer_replies import JSON
from tests.support.models.scripted import Scripted, by_purpose
from tests.support.mutation import mutate

BEES = "Honey bees tell each other where flowers are by dancing. A colony has one queen."
ANTS = "Ants walk far and wide. The queen of Formica lives for 20 years."


def document(id: str, text: str) -> Document:
    middle = text.index(". ") + 2
    spans = (Span(id, 0, middle), Span(id, middle, len(text)))
    return Document(id, text, segments=tuple(Segment(f"{id}#{n}", span) for n, span in enumerate(spans)))


DOCUMENTS = {id: document(id, text) for id, text in (("bees", BEES), ("ants", ANTS))}
SPANS = tuple(Span(id, 0, len(one.text)) for id, one in DOCUMENTS.items())
PASSAGES = tuple(Passage(id, "", one.text) for id, one in DOCUMENTS.items())


def task(query: str = "How do insects live?", passages: tuple[Passage, ...] = PASSAGES) -> QueryTask:
    return QueryTask("1", "Tell me of insects.", query, passages, "", SPANS)


def item(text: Any = "Bees dance.", document: Any = 0, quote: Any = "where flowers are by dancing") -> dict[str, Any]:
    return {"text": text, "document": document, "quote": quote}


def write(*items: Any) -> str:
    return json.dumps({"claims": list(items)})


GOOD = [
    item(),
    item("Ants walk far.", 1, "Ants walk far and wide."),
    item("A colony has a queen.", 0, "A colony has one queen."),
]


def test_the_request_shows_query_narrative_and_numbered_documents() -> None:
    request = request_claims(task())
    user = request.messages[1][1]
    assert request.purpose == "claims"
    assert user.count("How do insects live?") == 2
    assert "Tell me of insects." in user
    assert user.index('<document id="0">\nHoney') < user.index('<document id="1">\nAnts')


def test_a_claim_cites_the_segment_of_its_quote() -> None:
    claims, dropped = read_claims(Reply(write(*GOOD)), task(), DOCUMENTS, 4)
    assert dropped == 0
    assert claims == [
        Claim("Bees dance.", ("where flowers are by dancing",), ("bees#0",), ((4, 0),)),
        Claim("Ants walk far.", ("Ants walk far and wide.",), ("ants#0",), ((4, 1),)),
        Claim("A colony has a queen.", ("A colony has one queen.",), ("bees#1",), ((4, 2),)),
    ]


def test_a_claim_cites_further_segments_that_have_its_names() -> None:
    said = item("The queen of Formica, an ant, lives for years.", 1, "Ants walk far and wide.")
    (claim,), dropped = read_claims(Reply(write(said)), task(), DOCUMENTS, 0)
    assert (claim.citations, dropped) == (("ants#0", "ants#1"), 0)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(item(quote="where the flowers are by dancing"), id="a quote in other words"),
        pytest.param(item(document=1), id="a quote of another document"),
        pytest.param(item(document=2), id="a number without a document"),
        pytest.param(item(document=True), id="a number that is none"),
        pytest.param(item(document=None), id="no document"),
        pytest.param(item(quote=None), id="no quote"),
        pytest.param(item(quote="dancing."), id="a quote that is too short"),
        pytest.param(item(text=7), id="a text that is none"),
        pytest.param(item(text=" \n"), id="an empty text"),
        pytest.param(item(text="word " * 61), id="a text that is too long"),
        pytest.param(item(text="Bees dance since 1999."), id="a number that no segment has"),
        pytest.param(item(text="Bees of Formica dance."), id="a name of another document"),
        pytest.param({}, id="an empty object"),
    ],
)
def test_a_claim_that_its_document_does_not_say_is_dropped_and_counted(bad: dict[str, Any]) -> None:
    claims, dropped = read_claims(Reply(write(bad, *GOOD)), task(), DOCUMENTS, 0)
    assert ([claim.uses for claim in claims], dropped) == ([((0, 0),), ((0, 1),), ((0, 2),)], 1)
    with pytest.raises(Unusable, match="word by word"):
        read_claims(Reply(write(bad)), task(), DOCUMENTS, 0)


def test_a_name_of_the_question_needs_no_segment() -> None:
    said = item("In Tyrol, bees dance.")
    with pytest.raises(Unusable):
        read_claims(Reply(write(said)), task(), DOCUMENTS, 0)
    assert read_claims(Reply(write(said)), task("How do insects live in Tyrol?"), DOCUMENTS, 0)[0]


def test_an_empty_list_is_an_answer_and_too_many_claims_are_cut() -> None:
    assert read_claims(Reply(write()), task(), DOCUMENTS, 0) == ([], 0)
    assert len(read_claims(Reply(write(*GOOD * 3)), task(), DOCUMENTS, 0)[0]) == MOST_CLAIMS


def test_queries_without_documents_or_replies_have_no_claims_and_that_is_recorded() -> None:
    tasks = [task("A?"), task("B?", ()), task("C?"), task("D?"), task("E?")]
    said: dict[str, str | Failure] = {
        "A?": write(*GOOD),
        "C?": Failure("down"),
        "D?": write(item(quote="not in it, I fear")),
        "E?": write(),
    }
    model = Scripted(lambda request: next(said[key] for key in said if key in request.messages[1][1]))
    claims, fallbacks = asyncio.run(collect_claims(model, tasks, DOCUMENTS))
    assert [claim.uses for claim in claims] == [((0, 0),), ((0, 1),), ((0, 2),)]
    assert not any("B?" in request.messages[1][1] for request in model.requests)
    assert [len(request.messages) for request in model.requests] == [2, 2, 2, 2, 4], "one repair, of D"
    assert [(fallback.topic_id, fallback.step) for fallback in fallbacks] == [("1", "claims")] * 2
    assert [fallback.reason[:24] for fallback in fallbacks] == ["query 3 has no claims: d", "query 4 has no claims: n"]


def test_dropped_claims_are_recorded() -> None:
    model = Scripted(by_purpose(claims=[{"claims": [item(quote="not in it, I fear"), *GOOD]}]))
    claims, fallbacks = asyncio.run(collect_claims(model, [task()], DOCUMENTS))
    assert len(claims) == 3
    reason = "query 1: 1 of 4 claims are dropped, because their document does not say them"
    assert fallbacks == [Fallback("1", "claims", reason)]


def test_only_queries_without_a_note_are_asked_for_claims() -> None:
    model = Scripted(by_purpose(claims=[{"claims": [item()]}], write_claims=[Failure("down")]))
    noted = [(1, "Ants walk far.", Span("ants", 0, ANTS.index(" The")))]
    tasks = [task("How do bees live?"), task("How do ants live?")]
    found = answer_from_claims(
        model, tasks, DOCUMENTS, lambda texts: np.eye(len(texts), 8, dtype=np.float32), 60, noted
    )
    answer, _ = asyncio.run(found)
    assert answer is not None
    assert [sentence.text for sentence in answer.sentences] == ["Bees dance.", "Ants walk far."]
    (asked,) = [request for request in model.requests if request.purpose == "claims"]
    assert "How do bees live?" in asked.messages[1][1]


@pytest.mark.parametrize(
    ("shown", "made"),
    [
        pytest.param(SPANS, ["bees#0", "bees#1"], id="all"),
        pytest.param(SPANS[:1], ["bees#0", "bees#1"], id="its document"),
        pytest.param((DOCUMENTS["bees"].segments[0].span,), [], id="one of its segments"),
        pytest.param(SPANS[1:], [], id="another document"),
    ],
)
def test_a_note_is_a_claim_only_if_its_query_has_evidence_of_its_whole_quote(
    shown: tuple[Span, ...], made: list[str]
) -> None:
    known = {span.doc_id: DOCUMENTS[span.doc_id] for span in shown}
    note = (0, "Bees dance.", Span("bees", 0, len(BEES)))
    claims = make_claims_of_notes([replace(task(), spans=shown)], [note], known)
    assert sorted(citation for claim in claims for citation in claim.citations) == made


def check(claims: list[Claim]) -> None:
    """Check what must hold for any reply: each quote stands in a document, and each citation is a segment of it."""
    for number, claim in enumerate(claims):
        (quote,) = claim.quotes
        (doc_id,) = {citation.partition("#")[0] for citation in claim.citations}
        assert " ".join(quote.split()) in " ".join(DOCUMENTS[doc_id].text.split())
        assert claim.uses == ((0, number),)
        assert claim.text == " ".join(claim.text.split()) != ""


@pytest.mark.slow
@given(
    said=st.lists(
        st.fixed_dictionaries(
            {
                "text": st.sampled_from(["Bees dance.", "\ud800\x00", ""]) | JSON,
                "document": st.integers(-1, 3) | JSON,
                "quote": st.sampled_from(["by dancing. A colony has", "Ants walk far and wide."]) | JSON,
            }
        )
        | JSON,
        max_size=4,
    )
)
def test_any_reply_gives_quoted_claims_or_is_refused(said: list[Any]) -> None:
    try:
        claims, dropped = read_claims(Reply(write(*said)), task(), DOCUMENTS, 0)
    except Unusable:
        return
    check(claims)
    assert len(claims) + dropped == len(said)


@pytest.mark.slow
def test_mutated_replies_give_quoted_claims_or_are_refused() -> None:
    chance, outcomes = Random(5), {"used": 0, "refused": 0}
    good = write(*GOOD, item(" word" * 9, 1, "The queen of Formica lives"))
    for _ in range(5_000):
        reply = Reply(mutate(good.encode(), chance).decode("utf-8", "surrogateescape"))
        try:
            check(read_claims(reply, task(), DOCUMENTS, 0)[0])
            outcomes["used"] += 1
        except Unusable:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 100
