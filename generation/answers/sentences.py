"""Sentences as models see and write them: shown, read from replies, counted and cut. No model moves a citation."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

from generation.context.delimit import delimit, neutralise
from generation.structured import read_objects
from generation.types import Answer, Fallback, Message, Reply, Sentence
from indexing.errors import Unusable

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NUMBER = re.compile(r"\d+")

MOST_SENTENCES = 256
"""Sentences of one answer; 400 words have about 20. Each is embedded and compared with all others."""

WordRange = tuple[int, int]
"""The fewest and the most words (separated by white space) that an answer should have; only the most is enforced."""


class Passage(NamedTuple):
    """A document, or the part of it that the model sees."""

    doc_id: str
    title: str
    text: str


def make_messages(system: str, user: str) -> tuple[Message, ...]:
    """The messages of a step."""
    return (("system", system), ("user", user))


def allow_tokens(high: int) -> int:
    """The tokens to allow for a reply of so many words: four a word, and 1,024 for JSON and thoughts."""
    return 4 * high + 1024


def show_passages(passages: Sequence[Passage]) -> str:
    """The passages as blocks, numbered from 0."""
    return "\n\n".join(delimit(number, text, title) for number, (_, title, text) in enumerate(passages))


def list_sentences(sentences: Sequence[Sentence]) -> str:
    """The sentences as a JSON list of ids (their places) and texts, one a line, without their citations."""
    lines = (
        json.dumps({"id": place, "text": neutralise(sentence.text)}, ensure_ascii=False)
        for place, sentence in enumerate(sentences)
    )
    return "[" + ",\n ".join(lines) + "]"


def tidy(text: str) -> str:
    """The text on one line, without control characters and halves of surrogate pairs."""
    return " ".join(_UNSEEN.sub(" ", text).split())


def count_words(sentences: Sequence[Sentence]) -> int:
    """Words of the sentences together."""
    return sum(len(sentence.text.split()) for sentence in sentences)


def is_place(value: Any, length: int) -> TypeGuard[int]:
    """Whether a JSON value is a whole number from 0 up to below `length`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < length


def read_citations(numbers: Any, passages: Sequence[Passage]) -> tuple[str, ...]:
    """The distinct ids of the documents that a model's list of numbers names; other values are dropped."""
    known = [n for n in numbers if is_place(n, len(passages))] if isinstance(numbers, list) else []
    return tuple(dict.fromkeys(passages[n].doc_id for n in known))


def make_sentences(pairs: Iterable[tuple[Any, tuple[str, ...]]]) -> tuple[Sentence, ...]:
    """Sentences of (text, citations) as a reply has them, empty ones left out.

    `Unusable` if there is none, or if there are more than `MOST_SENTENCES`.
    """
    sentences = []
    for text, citations in pairs:
        if not isinstance(text, str):
            raise Unusable("the text of a sentence is not a string")
        if tidy(text):
            sentences.append(Sentence(tidy(text), citations))
    if not sentences:
        raise Unusable("it has no sentence")
    if len(sentences) > MOST_SENTENCES:
        raise Unusable(f"it has {len(sentences):,} sentences, at most {MOST_SENTENCES} can be used")
    return tuple(sentences)


def make_answer_reader(passages: Sequence[Passage]) -> Callable[[Reply], tuple[Sentence, ...]]:
    """A reader of answers from these passages: sentences with the ids of the documents that they cite, perhaps none."""

    def read(reply: Reply) -> tuple[Sentence, ...]:
        found = read_objects(reply, "answer")
        return make_sentences((item.get("text"), read_citations(item.get("citations"), passages)) for item in found)

    return read


def read_rewritten(reply: Reply, sentences: Sequence[Sentence], may_drop: bool = False) -> tuple[Sentence, ...]:
    """The sentences with the texts that a reply gives them by id: same order, each with its own citations.

    `Unusable` for an id that is unknown or comes twice, for a number that the sentence did not hold (a fact that its
    citations need not support), and for a sentence that is missing or empty unless sentences may be dropped.
    """
    texts: dict[int, str] = {}
    for item in read_objects(reply, "sentences"):
        place, text = item.get("id"), item.get("text")
        if not is_place(place, len(sentences)) or place in texts or not isinstance(text, str):
            raise Unusable("each item needs the id of one of the sentences, none of them twice, and a text")
        texts[place] = tidy(text)
    kept = {place: texts[place] for place in range(len(sentences)) if texts.get(place)}
    missing = len(sentences) - len(kept)
    if not kept or (missing and not may_drop):
        raise Unusable(f"{missing} of {len(sentences)} sentences are missing")
    for place, text in kept.items():
        if added := _find_numbers(text) - _find_numbers(sentences[place].text):
            raise Unusable(f"sentence {place} did not hold the number {min(added)[:20]}")
    return tuple(replace(sentences[place], text=text) for place, text in kept.items())


def _find_numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(text.replace(",", "")))


def cut_to_words(answer: Answer, high: int, step: str) -> tuple[Answer | None, list[Fallback]]:
    """The answer's first sentences that have at most `high` words together, and a record if any sentence is cut.

    None if not even the first sentence fits.
    """
    kept = list(answer.sentences)
    while count_words(kept) > high:
        kept.pop()
    if len(kept) == len(answer.sentences):
        return answer, []
    reason = (
        f"{count_words(answer.sentences)} words in {len(answer.sentences)} sentences, at most {high} wanted: "
        f"cut after sentence {len(kept)}, {count_words(kept)} words"
    )
    return replace(answer, sentences=tuple(kept)) if kept else None, [Fallback(answer.topic_id, step, reason)]
