"""Sentences with character offsets, and the sliding windows of sentences that serve as segments.

MS MARCO V2.1 was cut the same way: windows of 10 sentences, a new one every 5 (TREC RAG 2024 corpus notes).
"""

import re
from dataclasses import replace

from indexing.types import Document, Segment, Span

WINDOW = 10
STRIDE = 5

_BREAK = re.compile(r"""[.!?]['")\]\u201d\u2019]*(?=\s)|\n\s*\n""")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|al|approx|Fig|No|Dr|Mr|Mrs|Ms|Prof|St|U\.S|[A-Z]))\.$")
_STARTS_SENTENCE = re.compile(r"""\s+(?:['"(\[\u201c\u2018*`-]*[^\sa-z'"(\[\u201c\u2018]|$)""")


def sentences(text: str) -> list[tuple[int, int]]:
    """The sentences of a text as (start, end) character offsets, ordered, without surrounding space."""
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _BREAK.finditer(text):
        end = match.end()
        if not match.group().isspace():
            abbreviated = _ABBREVIATION.search(text, max(start, end - 12), end)
            if abbreviated or not _STARTS_SENTENCE.match(text, end):
                continue
        _add_trimmed(spans, text, start, end)
        start = end
    _add_trimmed(spans, text, start, len(text))
    return spans


def _add_trimmed(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    stripped = piece.strip()
    if stripped:
        begin = start + piece.index(stripped)
        spans.append((begin, begin + len(stripped)))


def windows(spans: list[tuple[int, int]], size: int = WINDOW, stride: int = STRIDE) -> list[tuple[int, int]]:
    """Windows of `size` sentences every `stride`, as (start, end); the last one ends with the last sentence."""
    found = []
    for first in range(0, len(spans), stride):
        chunk = spans[first : first + size]
        found.append((chunk[0][0], chunk[-1][1]))
        if first + size >= len(spans):
            break
    return found


def segmented(document: Document) -> Document:
    """The document with segments: its own where it has them, else windows with ids `docid#n_start`."""
    if document.segments:
        return document
    spans = windows(sentences(document.text)) or [(0, len(document.text))]
    segments = tuple(
        Segment(f"{document.id}#{number}_{start}", Span(document.id, start, end))
        for number, (start, end) in enumerate(spans)
    )
    return replace(document, segments=segments)
