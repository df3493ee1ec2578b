"""What each narrative asks for, by a model in one call: questions, what each wants, and terms to search by."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

from keystone.generation.answers.sentences import tidy
from keystone.generation.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts.queries import contract as prompt
from keystone.generation.queries.understand import MOST_QUESTIONS, fit_topic, key_question, tidy_question
from keystone.generation.reply_types import check
from keystone.generation.rules.queries import extract_topic
from keystone.generation.structured import read_json
from keystone.generation.types import Failure, Fallback, Reply, Request, Understanding
from keystone.indexing.errors import Unusable
from keystone.indexing.words import find_content_words, find_words
from keystone.retrieval.types import AnswerForm, Ask, Topic

MOST_TERM_WORDS = 6
"""The most words of a term. A longer one is dropped."""


async def understand_by_contract(
    model: Model, topics: Sequence[Topic], most: int = MOST_QUESTIONS
) -> tuple[list[Understanding], list[Fallback]]:
    """Find the topic and at most `most` questions of each narrative, and what each question wants.

    If the model gives no questions, the narrative is the only question, and nothing is known of what it wants.
    """
    requests = [(request_contract(one.narrative), partial(read_contract, topic=one, most=most)) for one in topics]
    found = list[Understanding]()
    fallbacks = list[Fallback]()
    for one, read in zip(topics, await ask_all(model, requests), strict=True):
        if isinstance(read, Failure):
            fallbacks.append(Fallback(one.id, "contract", f"{read.reason}: the narrative is its only question"))
            read = Understanding(one.id, (" ".join(one.narrative.split()),), extract_topic(one.narrative))
        found.append(read)
    return found, fallbacks


def request_contract(narrative: str) -> Request:
    """Make a request for a narrative's questions, and for what each wants."""
    messages = (("system", prompt.SYSTEM), ("user", prompt.USER.format(narrative=narrative)))
    return Request("contract", messages, prompt.MAX_TOKENS, prompt.SCHEMA)


def read_contract(reply: Reply, topic: Topic, most: int = MOST_QUESTIONS) -> Understanding:
    """Read the questions of a narrative, in order, and its topic. `Unusable` for no question, or more than `most`.

    Questions that differ only in case, space or final punctuation are one. A weight out of range becomes the nearest
    one within it. Terms that the question holds already are dropped. If the reply's topic is unusable, rules extract
    one.
    """
    value = read_json(reply, lambda one: isinstance(one, dict) and isinstance(one.get("questions"), list))
    items = value.get("questions") if isinstance(value, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Unusable('it holds no list "questions" of objects')
    found: dict[str, tuple[str, Ask]] = {}
    for item in (check(item, prompt.WantedQuestion) for item in items):
        if item.question is None or item.form is None:
            raise Unusable(f"each question needs a text and a form, one of {', '.join(get_args(AnswerForm))}")
        if question := tidy_question(tidy(item.question)):
            weight = min(max(item.weight or 1, 1), prompt.MOST_WEIGHT)
            ask = Ask(item.form, weight, _read_terms(item.terms, question))
            found.setdefault(key_question(question), (question, ask))
    if not found:
        raise Unusable("it holds no question")
    if len(found) > most:
        raise Unusable(f"it holds {len(found):,} questions, at most {most} can be searched for")
    named = value.get("topic")
    try:
        phrase, _ = fit_topic(tidy(named) if isinstance(named, str) else "", topic.narrative)
    except Unusable:
        phrase = extract_topic(topic.narrative)
    questions, asks = zip(*found.values(), strict=True)
    return Understanding(topic.id, questions, phrase, asks=asks)


def keep_held_terms(
    found: Sequence[Understanding], holds: Callable[[Sequence[str]], Sequence[bool]]
) -> list[Understanding]:
    """Drop the terms that the corpus lacks. `holds` returns whether each term's words occur in any document."""
    terms = sorted({term for one in found for ask in one.asks for term in ask.terms})
    held = {term for term, known in zip(terms, holds(terms), strict=True) if known}
    return [
        replace(one, asks=tuple(replace(ask, terms=tuple(filter(held.__contains__, ask.terms))) for ask in one.asks))
        for one in found
    ]


def _read_terms(terms: Sequence[str], question: str) -> tuple[str, ...]:
    """Read the first terms of a question that have content, none of them twice."""
    known = f" {_fold(question)} "
    found: dict[str, str] = {}
    for term in map(tidy, terms):
        key = _fold(term)
        if find_content_words(term) and len(key.split()) <= MOST_TERM_WORDS and f" {key} " not in known:
            found.setdefault(key, term)
    return tuple(found.values())[: prompt.MOST_TERMS]


def _fold(text: str) -> str:
    return " ".join(find_words(text.casefold()))
