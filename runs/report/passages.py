"""The result of one request: documents or passages, and the sentences that cite them, for people and programs."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from keystone.generation.rules.words import find_terms
from keystone.generation.types import Answer, Fallback
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import UserError
from keystone.indexing.types import Document, Segment, Store, document_id
from keystone.runs.report.story import fill_lines


@dataclass(frozen=True, slots=True)
class Passage:
    """The text of a document, or of one of its segments: `id` names either, and `document` the document."""

    id: str
    document: str
    title: str
    url: str
    text: str
    score: float | None = None
    """The score of the document in a search; None outside a search."""


@dataclass(frozen=True, slots=True)
class CitedSentence:
    """A sentence with the numbers of the passages that it cites, from 1, best support first."""

    text: str
    citations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command: its passages, and if it answers, sentences and the model's missing replies."""

    command: str
    index: str
    input: str
    passages: tuple[Passage, ...]
    sentences: tuple[CitedSentence, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()


def choose_passage(document: Document, text: str, score: float) -> Passage:
    """Choose the segment with most terms of a text; the first among equals."""
    wanted = find_terms(text)
    best = max(
        cut_segments(document).segments, key=lambda segment: len(wanted & find_terms(document.segment_text(segment)))
    )
    return make_passage(document, best, score)


def read_passage(store: Store, name: str) -> Passage:
    """Read the document, or else the segment, with an id. `UserError` if there is neither."""
    for row in store.rows([name, document_id(name)]).tolist():
        if row < 0:
            continue
        (document,) = store.get([row])
        if document.id == name:
            return make_passage(document)
        for segment in cut_segments(document).segments:
            if segment.id == name:
                return make_passage(document, segment)
    raise UserError(f"found no document and no segment {name!r} in the index")


def number_citations(answer: Answer, store: Store) -> tuple[tuple[CitedSentence, ...], tuple[Passage, ...]]:
    """Number the citations of an answer in the order in which they appear; returns its sentences and passages."""
    ids = answer.list_citations()
    sentences = (
        CitedSentence(sentence.text, tuple(ids.index(cited) + 1 for cited in sentence.citations))
        for sentence in answer.sentences
    )
    return tuple(sentences), tuple(read_passage(store, name) for name in ids)


def format_result(result: Result) -> Iterator[str]:
    """Format the sentences with the numbers of their passages, then each passage under its number, as lines."""
    if result.sentences:
        yield from fill_lines(
            " ".join(
                f"{sentence.text}{''.join(f' [{number}]' for number in sentence.citations)}"
                for sentence in result.sentences
            )
        )
    for number, passage in enumerate(result.passages, 1):
        if number > 1 or result.sentences:
            yield ""
        yield from fill_lines(f"{passage.title} ({passage.id})" if passage.title else passage.id, f"[{number}] ")
        yield from fill_lines(passage.text, "    ")


def format_passage(passage: Passage) -> Iterator[str]:
    """Format one passage as lines: title, id and address, then the text with its own line ends."""
    for line in (passage.title, passage.id, passage.url):
        yield from fill_lines(line)
    yield ""
    for line in passage.text.split("\n"):
        yield from fill_lines(line) or [""]


def format_json(result: Result) -> str:
    """Format a result as JSON in ASCII, so that no control character of a corpus reaches the terminal."""
    return json.dumps(asdict(result), indent=2)


def make_passage(document: Document, segment: Segment | None = None, score: float | None = None) -> Passage:
    """Make the passage of a document, or of one of its segments."""
    name, text = (segment.id, document.segment_text(segment)) if segment else (document.id, document.text)
    return Passage(name, document.id, document.title, document.url, text, score)
