"""What narratives ask for, by a model: their questions, topics, and the words to search by.

Decomposition, topic extraction and expansion are those of the paper (section 2.1). Proper nouns that a narrative gives
as examples stay out of an expansion, since they lead the search astray (2.1.3). A contract has questions, what each
wants, and terms to search by, in one call.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from typing import Any, get_args

from keystone.generation.answers.sentences import tidy
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts import queries as prompts
from keystone.generation.replies import check, read_json, read_string, read_strings
from keystone.generation.rules.queries import INTERROGATIVES, extract_topic
from keystone.generation.types import Failure, Fallback, Reply, Request, Understanding
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.errors import Unusable
from keystone.indexing.words import find_content_words, find_words
from keystone.retrieval.types import AnswerForm, Ask, Topic

_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
MOST_QUESTIONS = 100
"""The most questions of one narrative. Each is a query of its own, whose documents are graded."""
MOST_COMPARED_WORDS = 100
"""The most words of a topic that is compared with its narrative word by word."""

_MARKER = re.compile(r"^(?:\d{1,2}[.)]|[-*\u2022])\s+")


async def understand_by_model(
    model: Model,
    topics: Sequence[Topic],
    variants: int = prompts.NUM_QUERIES,
    in_context: bool = False,
    most: int = MOST_QUESTIONS,
) -> tuple[list[Understanding], list[Fallback]]:
    """Find at most `most` questions, the topic and `variants` variants of the topic for every narrative.

    With `in_context` the model sees the narrative when it expands the topic, otherwise the topic alone (paper).

    The model decomposes and extracts together, and expands afterwards. If it gives no questions, the narrative is the
    only question. If its topic has words that the narrative lacks, the topic is cut to the longest run of words that
    both share. If they share none, the rules extract the topic. After one repair there may be fewer variants.

    Returns the understandings in the order of `topics`, and the fallbacks of all topics.
    """
    requests: list[tuple[Request, Callable[[Reply], Any]]] = []
    for one in topics:
        requests.append((prompts.DECOMPOSE.request(narrative=one.narrative), partial(read_questions, most=most)))
        requests.append((prompts.TOPIC.request(narrative=one.narrative), partial(read_topic, narrative=one.narrative)))
    found = await ask_all(model, requests)
    fallbacks: list[Fallback] = []
    questions: list[tuple[str, ...]] = []
    phrases: list[str] = []
    for one, listed, extracted in zip(topics, found[::2], found[1::2], strict=True):
        if isinstance(listed, Failure):
            fallbacks.append(Fallback(one.id, "decompose", f"{listed.reason}: the narrative is its only question"))
            listed = (" ".join(one.narrative.split()),)
        if isinstance(extracted, Failure):
            fallbacks.append(Fallback(one.id, "topic", f"{extracted.reason}: the rules extracted it"))
            extracted = extract_topic(one.narrative), ""
        elif extracted[1]:
            fallbacks.append(Fallback(one.id, "topic", f"{extracted[1]!r} is not in the narrative's words: cut"))
        questions.append(listed)
        phrases.append(extracted[0])
    expanded, missing = await expand_topics(model, topics, phrases, variants, in_context)
    parts = zip(topics, questions, phrases, expanded, strict=True)
    return [Understanding(one.id, asks, phrase, more) for one, asks, phrase, more in parts], fallbacks + missing


def read_questions(reply: Reply, most: int = MOST_QUESTIONS) -> tuple[str, ...]:
    """Read the distinct questions, in order. `Unusable` if there is none, or more than `most`.

    Each question begins with a capital letter, has single spaces and no marker of a list. If questions differ only in
    case, space or final punctuation, the first one stays.
    """
    found: dict[str, str] = {}
    for text in map(tidy, read_strings(reply, "questions")):
        if question := tidy_question(text):
            found.setdefault(key_question(question), question)
    if not found:
        raise Unusable("it holds no question")
    if len(found) > most:
        raise Unusable(f"it holds {len(found):,} questions, at most {most} can be searched for")
    return tuple(found.values())


def tidy_question(text: str) -> str:
    """Take the marker of a list off a question, and begin it with a capital letter; empty if it has no word."""
    question = _MARKER.sub("", text)
    return question[0].upper() + question[1:] if _WORD.findall(question) else ""


def key_question(question: str) -> str:
    """Make a key that is equal for questions that differ in case and final punctuation alone."""
    return question.casefold().rstrip(" ?.!")


def read_topic(reply: Reply, narrative: str) -> tuple[str, str]:
    """Read the topic in the narrative's words, and the model's own words if they had to be cut, else an empty text.

    If the model's topic has other words, the longest run of words that the narrative shares replaces it, in the
    narrative's spelling. `Unusable` if they share no word of content, or if the topic has more than eight words.
    """
    return fit_topic(tidy(read_string(reply, "topic")), narrative)


def fit_topic(proposed: str, narrative: str) -> tuple[str, str]:
    """Fit a topic that a model proposed to the narrative's words: see `read_topic`."""
    if len(_WORD.findall(proposed)) > MOST_COMPARED_WORDS:
        raise Unusable(f"its topic has more than {prompts.LONGEST_TOPIC} words")
    if set(_fold_words(proposed)) <= set(_fold_words(narrative)):
        phrase, cut = proposed.strip(" \"'.?!"), ""
    else:
        run = SequenceMatcher(None, _fold_words(narrative), _fold_words(proposed), autojunk=False).find_longest_match()
        phrase, cut = " ".join(_WORD.findall(narrative)[run.a : run.a + run.size]), proposed
    if not find_content_words(phrase):
        raise Unusable("its topic is not made of words that occur in the description")
    if len(_WORD.findall(phrase)) > prompts.LONGEST_TOPIC:
        raise Unusable(f"its topic has more than {prompts.LONGEST_TOPIC} words")
    return phrase, cut


async def expand_topics(
    model: Model, topics: Sequence[Topic], phrases: Sequence[str], variants: int, in_context: bool = False
) -> tuple[list[tuple[str, ...]], list[Fallback]]:
    """Ask the model for `variants` variants of every topic phrase; fewer if two replies together hold fewer.

    A narrative without a phrase has no variants. With `in_context` the model sees the narrative too.
    """
    kept: list[tuple[str, ...]] = [() for _ in topics]
    requests: dict[int, tuple[Request, Callable[[Reply], tuple[str, ...]]]] = {}
    for number, (one, phrase) in enumerate(zip(topics, phrases, strict=True)):
        names = find_names_to_avoid(one.narrative, phrase)

        def read(reply: Reply, number: int = number, phrase: str = phrase, names: Sequence[str] = names) -> Any:
            proposed = (*kept[number], *map(tidy, read_strings(reply, "variants")))
            kept[number] = select_variants(proposed, phrase, names)[:variants]
            if len(kept[number]) < variants:
                raise Unusable(
                    f"it holds {len(kept[number])} usable variants, not {variants}: they must be distinct, differ from "
                    "the phrase, and have no comma, question mark or example's name"
                )
            return kept[number]

        if phrase and variants:
            requests[number] = request_variants(phrase, names, variants, one.narrative if in_context else ""), read
    found = await ask_all(model, list(requests.values()))
    fallbacks = [
        Fallback(topics[number].id, "expand", f"{value.reason}: {len(kept[number])} variants are used")
        for number, value in zip(requests, found, strict=True)
        if isinstance(value, Failure)
    ]
    return kept, fallbacks


def find_names_to_avoid(narrative: str, phrase: str) -> tuple[str, ...]:
    """Find the narrative's example names that share no word with the topic phrase."""
    own = set(_fold_words(phrase))
    return tuple(name for name in find_example_names(narrative) if not own & set(_fold_words(name)))


def request_variants(phrase: str, names: Sequence[str], variants: int, narrative: str = "") -> Request:
    """Make a request for variants of a topic phrase without these names. If it has a narrative, the model sees it."""
    prompt = prompts.EXPAND_NARRATIVE if narrative else prompts.EXPAND
    prompt = prompt._replace(user=prompt.user + (prompts.NAMES if names else ""))
    request = prompt.request(topic=phrase, variants=variants, narrative=narrative, names="; ".join(names))
    tokens = 64 + 32 * variants  # so many short phrases as JSON
    return replace(request, max_tokens=tokens, schema=prompts.make_variants_schema(variants))


def select_variants(variants: Iterable[str], phrase: str, names: Sequence[str]) -> tuple[str, ...]:
    """Select the usable variants, with single spaces and in order.

    A usable variant has a word, but no comma, no question mark and no example's name. It differs from the phrase and
    from all variants before it by more than case and punctuation.
    """
    avoided = [f" {' '.join(_fold_words(name))} " for name in names]
    found = {" ".join(_fold_words(phrase)): ""}
    for variant in variants:
        key = " ".join(_fold_words(variant))
        if key and not set(variant) & set(",?\uff0c\uff1f\u3001") and not any(name in f" {key} " for name in avoided):
            found.setdefault(key, " ".join(variant.split()))
    return tuple(found.values())[1:]


def _fold_words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


_CUE = re.compile(
    r"\b(?:such\s+as|(?<!would\s)(?<!['\u2019]d\s)like(?!\s+to\b)|including|for\s+(?:example|instance)|namely"
    r"|especially|e\.g\.?)(?!\w)",
    re.IGNORECASE,
)
_END = re.compile(rf"[;:)]|\b(?:{'|'.join(INTERROGATIVES)})\b", re.IGNORECASE)
_CAPITALISED = r"[^\W\d_a-z][\w'\u2019.&-]*\w"
_NAME = re.compile(rf"\b{_CAPITALISED}(?:\s+(?:(?:of|the|de|van|von|for)\s+)*{_CAPITALISED})*")
_POSSESSIVE = re.compile(r"['\u2019]s$")
_PRONOUN = re.compile(r"I['\u2019](?:m|d|ll|ve)")


def find_example_names(narrative: str) -> tuple[str, ...]:
    """Find the capitalised names after a cue such as `like` or `for example`, in order.

    The examples end with their sentence, with a semicolon, colon or bracket, or before a question word.
    """
    found: dict[str, str] = {}
    for start, end in split_sentences(narrative):
        for cue in _CUE.finditer(narrative, start, end):
            for name in _NAME.findall(_END.split(narrative[cue.end() : end], maxsplit=1)[0]):
                if not _PRONOUN.fullmatch(name):
                    name = _POSSESSIVE.sub("", name)
                    found.setdefault(name.casefold(), name)
    return tuple(found.values())


MOST_TERM_WORDS = 6
"""The most words of a term. A longer one is dropped."""


async def understand_by_contract(
    model: Model, topics: Sequence[Topic], most: int = MOST_QUESTIONS
) -> tuple[list[Understanding], list[Fallback]]:
    """Find the topic and at most `most` questions of each narrative, and what each question wants.

    If the model gives no questions, the narrative is the only question, and nothing is known of what it wants.
    """
    requests = [
        (prompts.CONTRACT.request(narrative=one.narrative), partial(read_contract, topic=one, most=most))
        for one in topics
    ]
    found = list[Understanding]()
    fallbacks = list[Fallback]()
    for one, read in zip(topics, await ask_all(model, requests), strict=True):
        if isinstance(read, Failure):
            fallbacks.append(Fallback(one.id, "contract", f"{read.reason}: the narrative is its only question"))
            read = Understanding(one.id, (" ".join(one.narrative.split()),), extract_topic(one.narrative))
        found.append(read)
    return found, fallbacks


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
    for item in (check(item, prompts.WantedQuestion) for item in items):
        if item.question is None or item.form is None:
            raise Unusable(f"each question needs a text and a form, one of {', '.join(get_args(AnswerForm))}")
        if question := tidy_question(tidy(item.question)):
            weight = min(max(item.weight or 1, 1), prompts.MOST_WEIGHT)
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
    return tuple(found.values())[: prompts.MOST_TERMS]


def _fold(text: str) -> str:
    return " ".join(find_words(text.casefold()))
