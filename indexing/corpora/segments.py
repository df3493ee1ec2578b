"""Sentences with character offsets, and the sliding windows of sentences that serve as segments.

MS MARCO V2.1 was cut the same way: windows of 10 sentences, a new one every 5 (TREC RAG 2024 corpus notes).
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from indexing.errors import UserError
from indexing.types import Document, Segment, Span

WINDOW = 10
STRIDE = 5

MS_MARCO_DOCUMENT = r"msmarco_v2\.1_doc_\d+_\d+"
"""The form of the ids of the documents of MS MARCO V2.1, a regular expression."""
MS_MARCO_SEGMENT = rf"{MS_MARCO_DOCUMENT}#\d+_\d+"
"""The form of the ids of its segments. The second number is no offset in the document, so nobody can make them up."""

SHORT_LINE = 48
"""A line up to this length that does not end with a comma is a heading, an item or the end of a paragraph."""

_STOP = re.compile(r"""[.!?]['")\]\u201d\u2019]*(?=\s)""")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|al|approx|Fig|No|Dr|Mr|Mrs|Ms|Prof|St|U\.S|[A-Z]))\.$")
_NEXT = re.compile(r"""\s+(?:['"(\[\u201c\u2018*`-]*[^\sa-z'"(\[\u201c\u2018]|$)""")


def sentences(text: str) -> list[tuple[int, int]]:
    """The sentences of a text as (start, end) character offsets, ordered, without surrounding space.

    A sentence ends with its punctuation, at a blank line, or with a short line.
    """
    stops = {
        match.end()
        for match in _STOP.finditer(text)
        if _NEXT.match(text, match.end()) and not _ABBREVIATION.search(text, max(0, match.end() - 12), match.end())
    }
    stops.update(_short_lines(text))
    spans: list[tuple[int, int]] = []
    start = 0
    for stop in [*sorted(stops), len(text)]:
        _add_trimmed(spans, text, start, stop)
        start = stop
    return spans


def _short_lines(text: str) -> Iterator[int]:
    start = 0
    while (end := text.find("\n", start) + 1) > 0:
        line = text[start:end].strip()
        if len(line) <= SHORT_LINE and not line.endswith(","):
            yield end
        start = end


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
    """The document with segments: its own where it has them, else windows with ids `docid#wn_start`.

    The `w` tells windows from official segments, to every validator too. A document with the id of a segment of MS
    MARCO V2.1 is that segment.
    """
    if document.segments:
        return document
    if re.fullmatch(MS_MARCO_SEGMENT, document.id):
        return replace(document, segments=(Segment(document.id, Span(document.id, 0, len(document.text))),))
    spans = windows(sentences(document.text)) or [(0, len(document.text))]
    segments = tuple(
        Segment(f"{document.id}#w{number}_{start}", Span(document.id, start, end))
        for number, (start, end) in enumerate(spans)
    )
    return replace(document, segments=segments)


def is_window(segment_id: str) -> bool:
    """Whether a segment is a window that `segmented` cut, by its id."""
    return bool(re.search(r"#w\d+_\d+\Z", segment_id))


def is_cut_officially(document_id: str) -> bool:
    """Whether a document of this id has official segments, given or not; nobody else knows windows of it."""
    return bool(re.fullmatch(MS_MARCO_DOCUMENT, document_id))


def refuse_windows(document: Document) -> None:
    """Raise `UserError` for a document of MS MARCO V2.1 whose segments are windows that Keystone cut."""
    if is_cut_officially(document.id) and is_window(document.segments[0].id):
        where = f"{document.place}: " if document.place else ""
        raise UserError(
            f"{where}document {document.id} has no official segment, and no track knows windows that Keystone cuts: "
            "name the file of its official segments with --segments, or ask for windows with --windows"
        )
