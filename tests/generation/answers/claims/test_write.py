"""Prose from claims: citations stay with their claims, and sentences that say more are refused."""

import asyncio
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.answers.claims import Claim, ProseTask, find_objection, read_prose, request_prose, write_prose
from keystone.generation.answers.sentences import count_words
from keystone.generation.types import Failure, Fallback, Reply, Sentence
from keystone.indexing.errors import Unusable
from tests.support.models.answer_replies import JSON
from tests.support.models.scripted import Scripted
from tests.support.mutation import mutate

CLAIMS = (
    Claim("Honey bees dance in the hive.", ("dance in the hive to tell",), ("bees#1", "bees#2"), ((0, 0),)),
    Claim("A colony of Apis has 1,000 workers.", ("has 1,000 workers",), ("bees#3",), ((0, 1), (1, 0))),
    Claim("Ants walk far.", ("Ants walk far and wide.",), ("ants#0",), ((1, 1),)),
)
OWN = tuple(Sentence(claim.text, claim.citations) for claim in CLAIMS)
TASK = ProseTask("1", "Tell me of insects.", ("How do bees live?", "How do ants live?"), CLAIMS, 30)


def write(*sentences: tuple[Any, Any]) -> str:
    return json.dumps({"sentences": [{"claims": ids, "text": text} for ids, text in sentences]})


GOOD = (([0], "Honey bees dance in their hive."), ([1, 2], "While ants walk far, a colony of Apis has 1000 workers."))


def test_the_request_lists_claims_by_id_with_their_questions_and_no_citation() -> None:
    request = request_prose(TASK)
    user = request.messages[1][1]
    rows = [json.loads(line.strip(" [],")) for line in user.splitlines() if '"id": ' in line]
    assert [(row["id"], row["question"][7:11], row["text"]) for row in rows] == [
        (0, "bees", CLAIMS[0].text),
        (1, "bees", CLAIMS[1].text),
        (2, "ants", CLAIMS[2].text),
    ]
    assert "bees#1" not in user
    assert "at most 30 words" in user
    assert request.purpose == "write_claims"


def test_sentences_cite_the_segments_of_their_claims() -> None:
    sentences, refused = read_prose(Reply(write(*GOOD)), TASK)
    assert sentences == (
        Sentence("Honey bees dance in their hive.", ("bees#1", "bees#2")),
        Sentence("While ants walk far, a colony of Apis has 1000 workers.", ("bees#3", "ants#0")),
    )
    assert refused == []


def test_the_order_is_that_of_the_claims_and_a_claim_left_out_stands_as_it_is() -> None:
    sentences, refused = read_prose(Reply(write(([2], "Ants walk far and wide."), ([0], "Bees dance."))), TASK)
    assert sentences == (
        Sentence("Bees dance.", ("bees#1", "bees#2")),
        OWN[1],
        Sentence("Ants walk far and wide.", ("ants#0",)),
    )
    assert refused == ["claim 1: no sentence says it"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("Honey bees dance in the hive of Vienna.", "'Vienna' is in no claim", id="a name"),
        pytest.param("Honey bees dance in the hive 3 times.", "'3' is in no claim", id="a number"),
        pytest.param("Honey bees dance, and Apis too.", "'Apis' is in no claim", id="the name of another claim"),
        pytest.param("Wasps hunt spiders and build nests of paper.", "it shares too few words", id="other words"),
        pytest.param("They do so.", "", id="a sentence without content"),
        pytest.param("To tell others, Honey bees dance in a hive.", "", id="words of the quote"),
    ],
)
def test_a_sentence_that_says_more_gives_way_to_its_claims(text: str, why: str) -> None:
    assert find_objection(text, CLAIMS[:1]).startswith(why)
    sentences, refused = read_prose(Reply(write(([0], text), *GOOD[1:])), TASK)
    assert sentences[0] == (OWN[0] if why else Sentence(text, OWN[0].citations))
    assert [reason.partition(": ")[2].startswith(why) for reason in refused] == [True] * bool(why)


def test_if_a_joined_sentence_is_refused_each_of_its_claims_stands() -> None:
    said = write(([0, 2], "Bees and ants live in Vienna."), ([1], "Apis has 1,000 workers."))
    sentences, refused = read_prose(Reply(said), TASK)
    assert sentences == (OWN[0], Sentence("Apis has 1,000 workers.", ("bees#3",)), OWN[2])
    assert refused == ["claims 0, 2: 'Vienna' is in no claim of the sentence"]


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(write(*GOOD, ([0], "Again, bees dance.")), id="a claim twice"),
        pytest.param(write(([0, 0], "Bees dance.")), id="a claim twice in one sentence"),
        pytest.param(write(([3], "Bees dance.")), id="an unknown claim"),
        pytest.param(write(([-1], "Ants walk far.")), id="a claim before the first"),
        pytest.param(write(([], "Bees dance.")), id="no claim"),
        pytest.param(write((0, "Bees dance.")), id="no list"),
        pytest.param(write(([True], "Bees dance.")), id="an id that is no number"),
        pytest.param(write(([0], " ")), id="no text"),
        pytest.param(write(([0], None)), id="a text that is none"),
        pytest.param(write(([0], "Honey bees dance in the hive " * 6)), id="too many words"),
        pytest.param('{"sentences": ["Bees dance."]}', id="no objects"),
        pytest.param("Bees dance.", id="prose"),
    ],
)
def test_other_replies_are_refused(reply: str) -> None:
    with pytest.raises(Unusable):
        read_prose(Reply(reply), TASK)


def test_if_the_model_fails_the_claims_are_the_answer() -> None:
    model = Scripted(lambda _: "I would rather not.")
    answer, fallbacks = asyncio.run(write_prose(model, TASK))
    assert (answer.topic_id, answer.sentences) == ("1", OWN)
    assert fallbacks == [Fallback("1", "write_claims", "the claims stand as they are: it holds no JSON")]
    assert len(model.requests) == 2, "one repair"
    _, fallbacks = asyncio.run(write_prose(Scripted(lambda _: Failure("down")), TASK))
    assert fallbacks[0].reason == "the claims stand as they are: down"


def check(sentences: tuple[Sentence, ...]) -> None:
    """Check what must hold for any reply: each sentence cites what its claims cite, and all claims are cited."""
    own = {citation for claim in CLAIMS for citation in claim.citations[:1]}
    assert own <= {citation for sentence in sentences for citation in sentence.citations}
    assert count_words(sentences) <= TASK.words
    assert all(sentence.text == " ".join(sentence.text.split()) != "" for sentence in sentences)
    assert all(sentence in OWN or not find_objection(sentence.text, CLAIMS) for sentence in sentences)


@pytest.mark.slow
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "claims": st.lists(st.integers(-1, 3), max_size=3) | JSON,
                "text": st.sampled_from(["Bees dance.", "Ants walk in 1999.", "\ud800\x00"]) | JSON,
            }
        )
        | JSON,
        max_size=4,
    )
)
def test_any_reply_keeps_the_citations_or_is_refused(said: list[Any]) -> None:
    try:
        sentences, _ = read_prose(Reply(json.dumps({"sentences": said})), TASK)
    except Unusable:
        return
    check(sentences)


@pytest.mark.slow
def test_mutated_replies_keep_the_citations_or_are_refused() -> None:
    chance, outcomes = Random(5), {"used": 0, "refused": 0}
    for _ in range(5_000):
        reply = Reply(mutate(write(*GOOD).encode(), chance).decode("utf-8", "surrogateescape"))
        try:
            check(read_prose(reply, TASK)[0])
            outcomes["used"] += 1
        except Unusable:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 100
