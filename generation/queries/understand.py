"""Decomposition, topic extraction and expansion of narratives by a model (paper, section 2.1).

Proper nouns that a narrative gives as examples. Expansion by them leads the search astray (paper, 2.1.3).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any

from keystone.generation.answers.sentences import tidy
from keystone.generation.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts.queries import decompose, expand, expand_narrative, topic
from keystone.generation.rules.queries import extract_topic
from keystone.generation.rules.words import INTERROGATIVES
from keystone.generation.structured import read_string, read_strings
from keystone.generation.types import Failure, Fallback, Reply, Request, Understanding
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.errors import Unusable
from keystone.indexing.words import find_content_words
from keystone.retrieval.types import Topic

_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
MOST_QUESTIONS = 100
"""The most questions of one narrative. Each is a query of its own, whose documents are graded."""
MOST_COMPARED_WORDS = 100
"""The most words of a topic that is compared with its narrative word by word."""

_MARKER = re.compile(r"^(?:\d{1,2}[.)]|[-*\u2022])\s+")


async def understand_by_model(
    model: Model,
    topics: Sequence[Topic],
    variants: int = expand.NUM_QUERIES,
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
        requests.append((request_questions(one.narrative), partial(read_questions, most=most)))
        requests.append((request_topic(one.narrative), partial(read_topic, narrative=one.narrative)))
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


def request_questions(narrative: str) -> Request:
    """Make a request for a narrative's questions."""
    return _make_request("decompose", decompose, decompose.USER.format(narrative=narrative))


def read_questions(reply: Reply, most: int = MOST_QUESTIONS) -> tuple[str, ...]:
    """Read the distinct questions, in order. `Unusable` if there is none, or more than `most`.

    Each question begins with a capital letter, has single spaces and no marker of a list. If questions differ only in
    case, space or final punctuation, the first one stays.
    """
    found: dict[str, str] = {}
    for text in _read_tidy(reply, "questions"):
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
    return question[0].upper() + question[1:] if _split_words(question) else ""


def key_question(question: str) -> str:
    """Make a key that is equal for questions that differ in case and final punctuation alone."""
    return question.casefold().rstrip(" ?.!")


def request_topic(narrative: str) -> Request:
    """Make a request for a narrative's topic."""
    return _make_request("topic", topic, topic.USER.format(narrative=narrative))


def read_topic(reply: Reply, narrative: str) -> tuple[str, str]:
    """Read the topic in the narrative's words, and the model's own words if they had to be cut, else an empty text.

    If the model's topic has other words, the longest run of words that the narrative shares replaces it, in the
    narrative's spelling. `Unusable` if they share no word of content, or if the topic has more than eight words.
    """
    return fit_topic(tidy(read_string(reply, "topic")), narrative)


def fit_topic(proposed: str, narrative: str) -> tuple[str, str]:
    """Fit a topic that a model proposed to the narrative's words: see `read_topic`."""
    if len(_split_words(proposed)) > MOST_COMPARED_WORDS:
        raise Unusable(f"its topic has more than {topic.LONGEST} words")
    if set(_fold_words(proposed)) <= set(_fold_words(narrative)):
        phrase, cut = proposed.strip(" \"'.?!"), ""
    else:
        run = SequenceMatcher(None, _fold_words(narrative), _fold_words(proposed), autojunk=False).find_longest_match()
        phrase, cut = " ".join(_split_words(narrative)[run.a : run.a + run.size]), proposed
    if not find_content_words(phrase):
        raise Unusable("its topic is not made of words that occur in the description")
    if len(_split_words(phrase)) > topic.LONGEST:
        raise Unusable(f"its topic has more than {topic.LONGEST} words")
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
            proposed = (*kept[number], *_read_tidy(reply, "variants"))
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
    prompt = expand_narrative if narrative else expand
    user = prompt.USER.format(topic=phrase, variants=variants, narrative=narrative)
    if names:
        user += expand.NAMES.format(names="; ".join(names))
    messages = (("system", prompt.SYSTEM), ("user", user))
    return Request("expand", messages, expand.max_tokens(variants), expand.schema(variants))


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


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text)


def _fold_words(text: str) -> list[str]:
    return [word.casefold() for word in _split_words(text)]


def _read_tidy(reply: Reply, name: str) -> list[str]:
    return [tidy(text) for text in read_strings(reply, name)]


def _make_request(purpose: str, prompt: Any, user: str) -> Request:
    return Request(purpose, (("system", prompt.SYSTEM), ("user", user)), prompt.MAX_TOKENS, prompt.SCHEMA)


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
