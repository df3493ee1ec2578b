"""Chunks: the segments closest to a question, without overlap (Disco-RAG, section 3: top-K chunks)."""

from collections.abc import Sequence
from dataclasses import dataclass

from keystone.generation.context.delimit import delimit
from keystone.generation.readers.structure_reader import Question
from keystone.generation.readers.write import cut_to_tokens
from keystone.generation.types import Evidence
from keystone.indexing.structures.blocks import trim
from keystone.indexing.types import Span

LEAST_LEFT = 0.25
"""The least share of a segment that makes a chunk after its overlap with others is cut off."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk. Its number counts from 1 in the order of documents and text, and `cosine` is that to the question.

    `document` is the number of its document in the prompt of the answer, from 0.
    """

    number: int
    document: int
    span: Span
    text: str
    cosine: float

    @property
    def line(self) -> str:
        """The text on one line. So no line of a document stands where a model writes its own."""
        return " ".join(self.text.split())


def choose_chunks(question: Question, most: int, tokens: int) -> list[Chunk]:
    """Choose the `most` segments that are closest to a question, within `tokens` tokens (0: no limit).

    Ties go to the better document, then to the earlier segment. If a segment overlaps with a chunk, the longest part
    that is left is the chunk. If that part is less than a quarter of the segment, the function leaves the segment out.
    """
    found: list[Evidence] = []
    for cosine, rank, span in _rank_segments(question):
        if len(found) == most:
            break
        text = question.documents[rank].text
        start, end = trim(text, *_cut_overlap(span, [item.span for item in found]))
        if end - start >= max(1, LEAST_LEFT * (span.end - span.start)):
            found.append(Evidence(Span(span.doc_id, start, end), text[start:end], cosine, question.query_id))
    kept = cut_to_tokens(found, tokens)
    rank_of = {document.id: rank for rank, document in enumerate(question.documents)}
    kept.sort(key=lambda item: (rank_of[item.span.doc_id], item.span.start))
    places = {id: place for place, id in enumerate(dict.fromkeys(item.span.doc_id for item in kept))}
    return [
        Chunk(number, places[item.span.doc_id], item.span, item.text, item.score) for number, item in enumerate(kept, 1)
    ]


def list_evidence(chunks: Sequence[Chunk], query_id: str) -> tuple[Evidence, ...]:
    """List the chunks as evidence, the closest to the question first."""
    return tuple(
        Evidence(chunk.span, chunk.text, chunk.cosine, query_id, why=f"chunk {chunk.number}")
        for chunk in rank_chunks(chunks)
    )


def rank_chunks(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Put the chunks in the order of their cosine, highest first. Ties stay in the order of the text."""
    return sorted(chunks, key=lambda chunk: -chunk.cosine)


def show_chunks(chunks: Sequence[Chunk], lines: Sequence[str] = ()) -> str:
    """Show chunks as delimited documents of one line; `lines` may hold other lines of their text."""
    shown = lines or [chunk.line for chunk in chunks]
    return "\n\n".join(
        delimit(chunk.number, f"CHUNK[{chunk.number}]: {line}") for chunk, line in zip(chunks, shown, strict=True)
    )


def _rank_segments(question: Question) -> list[tuple[float, int, Span]]:
    """List all segments with their cosine to the question and their document's rank, the closest first.

    A document without segments is one stretch, whose cosine counts as 0.
    """
    found: list[tuple[float, int, Span]] = []
    for rank, row in enumerate(question.rows):
        document = question.context.documents[row]
        cosines = (question.context.segments[row] @ question.vector).tolist() if document.segments else [0.0]
        spans = [segment.span for segment in document.segments] or [Span(document.id, 0, len(document.text))]
        found += [(cosine, rank, span) for cosine, span in zip(cosines, spans, strict=True)]
    return sorted(found, key=lambda one: (-one[0], one[1], one[2].start))


def _cut_overlap(span: Span, chosen: Sequence[Span]) -> tuple[int, int]:
    """Cut off what chosen stretches hold; returns the longest part that is left, the first of equals."""
    parts, at = [], span.start
    for other in sorted((one for one in chosen if one.doc_id == span.doc_id), key=lambda one: one.start):
        parts.append((at, min(other.start, span.end)))
        at = max(at, other.end)
    parts.append((at, span.end))
    return max(parts, key=lambda part: part[1] - part[0])
