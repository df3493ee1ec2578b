"""The material of one question: the chunks of its documents, their facts, and the graph of these facts' keys."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from keystone.generation.context.texts import FIRST_WIDE_CHARACTER, convert_weight, weigh_prefixes
from keystone.generation.readers.structure_reader import Question
from keystone.indexing.structures.blocks import paragraphs, sentence_spans
from keystone.indexing.structures.fact_graph import FactGraph, join_graphs, make_graph
from keystone.indexing.types import Document, Span
from keystone.indexing.words import STEM_LETTERS, find_content_words

WORDS_WEIGHT = 0.6
"""The weight of words in common with the question. The cosine of the segment has weight 1."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a document, `document.text[start:end]`. `number` counts from 1 over all documents of the question."""

    number: int
    row: int
    document: Document
    start: int
    end: int

    @property
    def id(self) -> str:
        """The name of the chunk for a model. It is short, so that the model copies it without errors."""
        return f"C{self.number}"

    @property
    def text(self) -> str:
        """The text of the chunk."""
        return self.document.text[self.start : self.end]

    @property
    def span(self) -> Span:
        """The stretch of the document."""
        return Span(self.document.id, self.start, self.end)


@dataclass(frozen=True, slots=True)
class ChunkFact:
    """A fact of a chunk in words, with its keys as written, and the stretch of the document that states it."""

    chunk: int
    span: Span
    text: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Material:
    """The chunks of all documents in order, and their facts in the same order. The number of a fact is its place."""

    question: Question
    chunks: tuple[Chunk, ...]
    facts: tuple[ChunkFact, ...]

    @cached_property
    def graph(self) -> FactGraph:
        """The graph of the keys of all documents: the join of each document's graph."""
        by_document: dict[str, list[tuple[str, ...]]] = {}
        for fact in self.facts:
            by_document.setdefault(fact.span.doc_id, []).append(fact.keys)
        return join_graphs([make_graph(keys) for keys in by_document.values()])

    @cached_property
    def by_chunk(self) -> dict[int, list[int]]:
        """The numbers of the facts of each chunk."""
        found: dict[int, list[int]] = {chunk.number: [] for chunk in self.chunks}
        for number, fact in enumerate(self.facts):
            found[fact.chunk].append(number)
        return found

    @cached_property
    def closeness(self) -> NDArray[np.float64]:
        """How close each fact is to the question: the cosine of the closest segment around it, and words in common."""
        asked = find_parts(self.question.text)
        rows = {document.id: row for row, document in zip(self.question.rows, self.question.documents, strict=True)}
        context = self.question.context
        cosines = {row: context.segments[row] @ self.question.vector for row in rows.values()}
        spans = {row: [segment.span for segment in context.documents[row].segments] for row in rows.values()}
        starts = {row: np.array([span.start for span in own]) for row, own in spans.items()}
        ends = {row: np.array([span.end for span in own]) for row, own in spans.items()}
        found = np.zeros(len(self.facts))
        for number, fact in enumerate(self.facts):
            row = rows[fact.span.doc_id]
            around = cosines[row][(starts[row] <= fact.span.start) & (fact.span.start < ends[row])]
            parts = find_parts(fact.text)
            shared = len(parts & asked) / max(1, min(len(parts), len(asked)))
            found[number] = (float(around.max()) if around.size else 0.0) + WORDS_WEIGHT * shared
        return found

    def get_chunk(self, number: int) -> Chunk:
        """Get a chunk by its number."""
        return self.chunks[number - 1]

    def find_next_chunk(self, number: int, step: int) -> int | None:
        """Find the number of the chunk before (`step` -1) or after (1) a chunk in the same document."""
        there = number + step
        if not 1 <= there <= len(self.chunks):
            return None
        return there if self.get_chunk(there).row == self.get_chunk(number).row else None


def list_chunks(question: Question, tokens: int) -> tuple[Chunk, ...]:
    """List the chunks of the question's documents, the documents in their order, numbered from 1."""
    spans = [
        (row, document, start, end)
        for row, document in zip(question.rows, question.documents, strict=True)
        for start, end in split_chunks(document.text, tokens)
    ]
    return tuple(Chunk(number, *span) for number, span in enumerate(spans, 1))


def split_chunks(text: str, tokens: int) -> list[tuple[int, int]]:
    """Split a text into chunks of at most `tokens` tokens, as (start, end). A chunk has as many paragraphs as fit.

    A longer paragraph is split at its sentences, and a longer sentence anywhere.
    """
    weights = weigh_prefixes(text)
    found: list[tuple[int, int]] = []
    for start, end in _list_pieces(text, weights, tokens):
        if found and convert_weight(weights[end] - weights[found[-1][0]]) <= tokens:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return found


def _list_pieces(text: str, weights: Sequence[int], tokens: int) -> list[tuple[int, int]]:
    """List paragraphs; but instead of a paragraph that is too long, its sentences or equal cuts of them."""

    def fits(start: int, end: int) -> bool:
        return convert_weight(weights[end] - weights[start]) <= tokens

    found: list[tuple[int, int]] = []
    for paragraph in paragraphs(text):
        for start, end in [paragraph] if fits(*paragraph) else sentence_spans(text, *paragraph):
            size = end - start if fits(start, end) else max(1, tokens)
            found += [(at, min(at + size, end)) for at in range(start, end, size)]
    return found


LEAST_SHARED = 2
"""The fewest words that a sentence shares with a stretch that it rests on, if it has so many."""
LEAST_SHARE = 0.3
"""The least share of the words of a stretch, or of the sentence if it is shorter, that both have."""
MOST_STRETCHES = 3
"""The most stretches that one sentence rests on."""

_NUMBER = re.compile(r"\d+")


def find_parts(text: str) -> frozenset[str]:
    """Find the parts by which texts are compared: stems of content words, numbers, and each wide character."""
    stems = (word[:STEM_LETTERS] for word in find_content_words(text))
    wide = (letter for letter in text if letter >= FIRST_WIDE_CHARACTER and letter.isalpha())
    return frozenset([*stems, *_NUMBER.findall(text), *wide])


def find_support(sentence: str, stretches: Sequence[frozenset[str]]) -> list[int]:
    """Find the places of the stretches that a sentence rests on, the best first; empty if there are none.

    The stretch that shares the most words comes first. Another one follows as long as it holds `LEAST_SHARED` words of
    the sentence that no stretch before it holds. Ties go to the earlier stretch.
    """
    words = find_parts(sentence)
    left, found = set(words), list[int]()
    while stretches and len(found) < MOST_STRETCHES:
        best = max(range(len(stretches)), key=lambda place: (len(left & stretches[place]), -place))
        shared, least = len(left & stretches[best]), min(LEAST_SHARED, len(words))
        share = len(words & stretches[best]) / max(1, min(len(words), len(stretches[best])))
        if not shared or shared < least or share < LEAST_SHARE:
            break
        found.append(best)
        left -= stretches[best]
    return found
