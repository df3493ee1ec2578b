"""Sentences of answers: how a model is shown them, and how they are read from replies, counted and cut.

A model rewrites texts by their ids, so it cannot move a citation from one sentence to another.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from keystone.generation.context.texts import delimit, neutralise, strip_delimiters
from keystone.generation.prompts.answers import CitedText, NewText
from keystone.generation.replies import read_json, read_parts, strip_thought
from keystone.generation.rules.words import find_numbers
from keystone.generation.types import Answer, Fallback, Reply, Sentence
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Span

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NUMBERS = r"(?:\[(?:(?:document|doc|source)s?\s)?\d{1,4}(?:,\s?\d{1,4})*\][\s,;]*+)++"
_OWN_NUMBERS = re.compile(rf"(?i)(?<=[.?!])\s*+{_NUMBERS}[.?!]?$|(?<=[^\s\],;:.?!])\s++{_NUMBERS}(?=[.?!]?$)")
"""Numbers of documents in brackets at the end of a sentence, such as `[0]`, `[0, 2]` or `[Document 0]`."""

_FENCE_LANGUAGE = re.compile(r"(?<=```)[\w+#-]+[ \t\r]*\n")

MOST_SENTENCES = 256
"""The most sentences of one answer; 400 words have about 20. Each is embedded and compared with all others."""

WordRange = tuple[int, int]
"""The fewest and the most words (separated by white space) of an answer. Only the most is enforced."""

Draft = tuple[Answer | None, list[Fallback]]
"""An answer, or None, and each step in which the model gave no usable reply."""


class Passage(NamedTuple):
    """A document, or the part of it that the model sees."""

    doc_id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class QueryTask:
    """One query of a topic, with the passages of its documents, best first.

    A sub-answer of the paper's run `base` takes 10 documents, of its run `fewdoc` 5.
    """

    topic_id: str
    narrative: str
    query: str
    passages: tuple[Passage, ...]
    notes: str = ""
    """The notes that the reader of the documents took. They guide the model, and are no source."""
    spans: tuple[Span, ...] = ()
    """The stretches that the passages show, if quotes are to be found in them."""


def allow_tokens(high: int) -> int:
    """Allow a reply of at most `high` words four tokens a word, and 1,024 more for JSON and thoughts."""
    return 4 * high + 1024


def show_passages(passages: Sequence[Passage], notes: str = "") -> str:
    """Show the passages as delimited documents, numbered from 0, and after them a reader's notes, if there are any."""
    shown = [delimit(number, text, title) for number, (_, title, text) in enumerate(passages)]
    noted = "\n\nNotes from a first reading. They guide the answer and cannot be cited:\n" + delimit("notes", notes)
    return "\n\n".join(shown) + (noted if notes else "")


def list_sentences(sentences: Sequence[Sentence]) -> str:
    """List the sentences as JSON, one a line: their ids (places from 0) and texts, without citations."""
    return list_as_json({"id": place, "text": neutralise(one.text)} for place, one in enumerate(sentences))


def list_as_json(items: Iterable[Mapping[str, Any]]) -> str:
    """List items as JSON, one a line."""
    return "[" + ",\n ".join(json.dumps(item, ensure_ascii=False) for item in items) + "]"


def group_by_first(number: int, alike: Callable[[int, int], bool]) -> list[list[int]]:
    """Group the places below `number`, in order: each joins the first group to whose first place it is alike."""
    groups: list[list[int]] = []
    for place in range(number):
        same = next((group for group in groups if alike(place, group[0])), None)
        if same is None:
            groups.append([place])
        else:
            same.append(place)
    return groups


def tidy(text: str) -> str:
    """Put a text on one line, without control characters and halves of surrogate pairs."""
    return " ".join(_UNSEEN.sub(" ", text).split())


def read_text(text: str, reply: Reply) -> str:
    """Read a sentence on one line, without the language of a block of code; empty if it has no letter and no digit.

    `Unusable` if it holds delimiters of documents, which a `last` reply loses.
    """
    stripped = strip_delimiters(text)
    if stripped != text and not reply.last:
        raise Unusable("a sentence holds a delimiter of documents, such as </document>")
    tidied = tidy(_FENCE_LANGUAGE.sub("\n", stripped))
    return tidied if any(map(str.isalnum, tidied)) else ""


def read_line(reply: Reply, wanted: str) -> str:
    """Read a reply in prose on one line. `Unusable` if it is empty, so that it does not hold what is `wanted`."""
    if not (text := tidy(strip_thought(reply.text))):
        raise Unusable(f"it holds no {wanted}")
    return text


def count_words(sentences: Sequence[Sentence]) -> int:
    """Count the words of all sentences together."""
    return sum(len(sentence.text.split()) for sentence in sentences)


def read_place(number: int | None, length: int) -> int | None:
    """Return a number of at least 0 and below `length`; None for any other one."""
    return number if number is not None and 0 <= number < length else None


def read_places(numbers: Sequence[int], length: int) -> list[int]:
    """Read the distinct numbers of at least 0 and below `length`. Others are dropped."""
    return list(dict.fromkeys(number for number in numbers if 0 <= number < length))


def read_citations(numbers: Sequence[int], passages: Sequence[Passage]) -> tuple[str, ...]:
    """Read the distinct ids of the documents that a model's list of numbers names. Other values are dropped."""
    return tuple(dict.fromkeys(passages[n].doc_id for n in read_places(numbers, len(passages))))


def make_sentences(pairs: Iterable[tuple[Any, tuple[str, ...]]], reply: Reply) -> tuple[Sentence, ...]:
    """Make sentences of the (text, citations) of a reply, without empty ones.

    `Unusable` if there is none, if there are more than `MOST_SENTENCES`, or if a text is not a string. `Unusable` also
    for a text that `read_text` refuses.
    """
    sentences = []
    for text, citations in pairs:
        if not isinstance(text, str):
            raise Unusable("the text of a sentence is not a string")
        if tidied := read_text(text, reply):
            sentences.append(Sentence(tidied, citations))
    if not sentences:
        raise Unusable("it has no sentence")
    if len(sentences) > MOST_SENTENCES:
        raise Unusable(f"it has {len(sentences):,} sentences, at most {MOST_SENTENCES} can be used")
    return tuple(sentences)


def read_answer(reply: Reply, passages: Sequence[Passage]) -> tuple[tuple[Sentence, ...], str]:
    """Read an answer from these passages, and what is missing, which is empty if nothing is.

    Its sentences cite document ids; some may cite none. If all of several sentences that cite end in numbers that they
    cite, these are dropped from the texts: outside of the prompt they mean nothing. Else they stay, for `x is [0].` may
    tell a value.
    """
    found = read_parts(reply, "answer", CitedText)
    value = read_json(reply, lambda one: isinstance(one, dict) and isinstance(one.get("answer"), list))
    missing = value.get("missing") if isinstance(value, dict) else None
    cited = (read_citations(item.citations, passages) for item in found)
    made = make_sentences(zip(_drop_own_numbers(found), cited, strict=True), reply)
    return made, read_text(missing, reply) if isinstance(missing, str) else ""


def _drop_own_numbers(items: Sequence[CitedText]) -> list[str | None]:
    def drop(item: CitedText) -> str | None:
        text = (item.text or "").rstrip()
        marks = _OWN_NUMBERS.search(text)
        if not marks or marks[0].count("[") < text.count("["):
            return item.text
        own = set(map(int, re.findall(r"\d+", marks[0]))) <= set(item.citations)
        return text[: marks.start()] + text[marks.end() :] if own else item.text

    texts = list(map(drop, items))
    dropped = [text != item.text for text, item in zip(texts, items, strict=True) if item.citations]
    return texts if len(dropped) > 1 and all(dropped) else [item.text for item in items]


def read_rewritten(reply: Reply, sentences: Sequence[Sentence], may_drop: bool = False) -> tuple[Sentence, ...]:
    """Read new texts of sentences, which the reply gives by id. Order and citations stay the same.

    `Unusable` if an id is unknown or comes twice, or if a sentence is missing or empty and `may_drop` is false.
    `Unusable` also if a text holds a number that its sentence did not hold: the citations may not support it.
    """
    texts: dict[int, str] = {}
    for item in read_parts(reply, "sentences", NewText):
        place = read_place(item.id, len(sentences))
        if place is None or place in texts or item.text is None:
            raise Unusable("each item needs the id of one of the sentences, none of them twice, and a text")
        texts[place] = read_text(item.text, reply)
    kept = {place: texts[place] for place in range(len(sentences)) if texts.get(place)}
    missing = len(sentences) - len(kept)
    if not kept or (missing and not may_drop):
        raise Unusable(f"{missing} of {len(sentences)} sentences are missing")
    for place, text in kept.items():
        if added := find_numbers(text) - find_numbers(sentences[place].text):
            raise Unusable(f"sentence {place} did not hold the number {min(added)[:20]}")
    return tuple(replace(sentences[place], text=text) for place, text in kept.items())


def cut_to_words(answer: Answer, high: int, step: str) -> Draft:
    """Cut an answer after its last sentence that fits within `high` words, with a `Fallback`; None if none fits."""
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
