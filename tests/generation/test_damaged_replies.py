"""Damaged replies of servers: every reader finds a value or says that the reply cannot be used."""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.generation.answers.answer import read_shorter
from keystone.generation.answers.cite import read_supports
from keystone.generation.answers.claims import Claim, ProseTask, read_claims, read_prose
from keystone.generation.answers.sentences import Passage, QueryTask, read_answer, read_rewritten
from keystone.generation.answers.support import find_sources, make_claims, read_verdicts
from keystone.generation.answers.synthesise import read_texts
from keystone.generation.grading import rate_answers
from keystone.generation.grading.nuggets import read_nuggets
from keystone.generation.grading.rate_answers import read_battle
from keystone.generation.grading.rate_sentences import AskedAnswer, read_rating, read_use
from keystone.generation.grading.umbrela import read_grades
from keystone.generation.llm.cache import decode_reply, encode_reply
from keystone.generation.llm.chat import PaidReply, ReplyBound, read_reply
from keystone.generation.queries.enrich import read_passage, read_search_texts
from keystone.generation.queries.understand import read_questions, read_topic
from keystone.generation.readers.combined import read_open
from keystone.generation.readers.disco_rag import read as disco_rag
from keystone.generation.readers.disco_rag import tree_reply
from keystone.generation.readers.disco_rag.relations import read_graph
from keystone.generation.readers.discorag.tools import read_action
from keystone.generation.readers.graphreader import replies as graphreader
from keystone.generation.readers.rdr2.view import View, read_choice
from keystone.generation.replies import note_drafts
from keystone.generation.rerank.endpoint import FORMS, read_scores
from keystone.generation.rerank.open import read_ranking, request_ranking
from keystone.generation.summarise import read_summary
from keystone.generation.types import Answer, Failure, Reply, Sentence
from keystone.indexing.errors import Unusable, WrongReply
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.types import Span
from keystone.indexing.vectors.endpoint import read_reply as read_vectors
from tests.support.mutation import FUZZ_CASES, mutate
from tests.support.structures.topic_segments import BEES, SEGMENTS, make_document, toward

DOCUMENT = make_document("bees", BEES)
PASSAGES = (Passage("bees", "Bees", DOCUMENT.text), Passage("ants", "", "Ants walk."))
SENTENCES = (Sentence("Bees dance for food.", ("bees#0",)), Sentence("A queen lays 2,000 eggs.", ("bees#2",)))
CLAIMS = make_claims(Answer("1", SENTENCES), toward(0, 2), SEGMENTS)
SOURCES = find_sources(CLAIMS, SEGMENTS)
TASK = QueryTask("1", "Bees?", "Bees?", PASSAGES[:1], "", (Span("bees", 0, len(DOCUMENT.text)),))
PROSE = ProseTask("1", "Bees?", ("Bees?",), tuple(Claim(one, (one,), ("bees#0",), ((0, 0),)) for one in BEES[:2]), 30)
VIEW = View("", {41: "It is 139 metres high.", 44: "The fastest"}, {3: "==History=="})

Read = Callable[[Reply], object]
READERS: list[tuple[str, Read]] = [
    ('{"questions": ["How do bees dance?"]}', read_questions),
    ('{"topic": "bees"}', partial(read_topic, narrative="How do bees dance?")),
    ('{"searches": ["bees dance"]}', partial(read_search_texts, searches=())),
    ("Bees dance.", read_passage),
    ("Bees dance.", partial(read_summary, limit=20)),
    ('{"grade": 2}', partial(read_grades, names=["grade"], expected=True)),
    ('{"1": 2, "2": "0"}', partial(read_grades, names=["1", "2"], expected=True)),
    ('{"ranking": [3, 1, 2]}', note_drafts(request_ranking("", ["", "", ""]), partial(read_ranking, passages=3))),
    ('{"answer": [{"text": "Bees dance.", "citations": [0, "1"]}]}', partial(read_answer, passages=PASSAGES)),
    ('{"sentences": [{"id": 0, "citations": [0]}]}', partial(read_supports, sentences=SENTENCES, passages=PASSAGES)),
    ('{"sentences": [{"id": 0, "text": "Bees."}]}', partial(read_rewritten, sentences=SENTENCES, may_drop=True)),
    ('{"sentences": [{"id": 0, "text": "Bees."}]}', partial(read_shorter, sentences=SENTENCES, words=(1, 9))),
    ('{"sentences": ["Bees dance."]}', read_texts),
    (
        '{"sentences": [{"id": 0, "support": "full", "citations": [0], "text": ""}]}',
        partial(read_verdicts, claims=CLAIMS[:1], sources=SOURCES, segments=SEGMENTS),
    ),
    (
        '{"claims": [{"text": "Bees dance.", "document": 0, "quote": "Bees dance for food."}]}',
        partial(read_claims, task=TASK, documents={"bees": DOCUMENT}, place=0),
    ),
    ('{"sentences": [{"claims": [0, "1"], "text": "Bees dance for food."}]}', partial(read_prose, task=PROSE)),
    ('{"nuggets": ["Bees dance."]}', partial(read_nuggets, known=["Bees."])),
    ('{"support": "full"}', read_rating),
    ('{"better": "A"}', rate_answers.read_choice),
    ('{"reason": "It says more.", "a": 4, "b": 3, "better": "A"}', read_battle),
    (
        '{"questions": [{"number": 1, "answered": "yes", "open": false}], '
        '"sentences": [{"number": 1, "use": true, "question": 1}], "lead": true, "mark": 4}',
        partial(read_use, asked=AskedAnswer("Bees?", ["Bees?"], ["Bees dance."])),
    ),
    ("Yes, partially.", partial(rate_answers.read_verdict, strict=False)),
    ('{"queries": [{"id": 0, "support": "full"}]}', partial(read_open, number=2)),
    ("1. Bees dance | bees | dances", graphreader.read_facts),
    ("Find the dances.", graphreader.read_plan),
    ("Node: bees, Score: 80", graphreader.read_scores),
    ("*Updated Notebook*: Bees.\n*Chosen Action*: read_chunk(C1)", graphreader.read_step),
    ("Thought 1: Bees.\nAction 1: Text[bees]", read_action),
    (
        "EDUs:\n[1] Bees dance\n[2] for food.\nRELATION([1], [2]): PURPOSE NS",
        partial(tree_reply.read_tree, text=BEES[0]),
    ),
    ("1 -> 2: ELABORATION", partial(read_graph, count=2)),
    ("PLAN: First the dances.", disco_rag.read_plan),
    ("[ANSWER] 41, 44", partial(read_choice, view=VIEW)),
    ('[{"id": "41", "tag": "[ANSWER]"}]', partial(read_choice, view=VIEW)),
]
"""A good reply for each reader."""
THOUGHTS = ["<think>{}</think>{}", "Draft: {}\n</think>{}"]
AROUND = ["{}", "```json\n{}\n```", "First {}, then:\n```json\n{}\n```", *THOUGHTS]
VECTORS = {"data": [{"index": 0, "embedding": [1.0, 2.0]}, {"index": "1", "embedding": "AACAPwAAAEA="}]}
SCORES = {"results": [{"index": 0, "relevance_score": 1.5}, {"index": "1", "relevance_score": 2}]}


def make_body(text: str, chance: Random) -> dict[str, Any]:
    """Make the body of a reply, in one of the forms of servers."""
    content = chance.choice([text, text, [{"type": "thinking", "thinking": []}, {"type": "text", "text": text}]])
    tokens = [{"token": one, "top_logprobs": [{"token": one, "logprob": -0.5}]} for one in text]
    choice = {"message": {"role": "assistant", "content": content, "reasoning_content": "Hm."}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": "3"}
    return {"choices": [{**choice, "logprobs": {"content": tokens}}], "usage": usage}


def read_all(seed: int) -> None:
    """Damage a reply's text, or the body that holds it, and read it by all readers of replies."""
    chance = Random(seed)
    text = chance.choice(AROUND).replace("{}", chance.choice(READERS)[0])
    if chance.random() < 0.5:
        text = mutate(text.encode(), chance).decode(errors="replace")
    body = json.dumps(make_body(text, chance)).encode()
    if chance.random() < 0.5:
        body = mutate(body, chance)
    try:
        answered = read_reply(parse_json(body), ReplyBound(None, 2))
    except (ValueError, WrongReply):
        return
    assert answered.note.isprintable()
    if isinstance(answered.outcome, Failure):
        assert answered.outcome.reason.isprintable()
        return
    assert decode_reply(encode_reply(answered)) == PaidReply(answered.outcome, answered.usage)
    for _, read in READERS:
        with suppress(Unusable):
            read(answered.outcome)


def read_numbers(seed: int) -> None:
    """Damage the body of a reply with embeddings or scores, and read it."""
    chance = Random(seed)
    for value, read in (VECTORS, read_vectors), (SCORES, partial(read_scores, form=FORMS["rerank"])):
        with suppress(ValueError):
            read(parse_json(mutate(json.dumps(value).encode(), chance)), count=2)


@pytest.mark.parametrize(("text", "read"), READERS, ids=[text[:20] for text, _ in READERS])
@pytest.mark.parametrize("around", ["{}", *THOUGHTS])
def test_each_reader_reads_its_reply_after_thoughts_too(text: str, read: Read, around: str) -> None:
    read(Reply(around.replace("{}", text)))


@given(st.integers())
def test_a_damaged_reply_is_a_value_or_named(seed: int) -> None:
    read_all(seed)
    read_numbers(seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Hypothesis's clock, deep in a stack
@settings(max_examples=FUZZ_CASES or 1_000)
@given(st.integers())
def test_a_thousand_damaged_replies_are_values_or_named(seed: int) -> None:
    read_all(seed)
    read_numbers(seed)
