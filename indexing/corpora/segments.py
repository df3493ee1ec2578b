"""Sentences, and windows of 10 of them every 5, which MS MARCO V2.1 has, too (TREC RAG 2024 corpus notes)."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.indexing.types import Document, Segment, Span

WINDOW_SENTENCES = 10
STRIDE_SENTENCES = 5

MS_MARCO_DOCUMENT_PATTERN = r"msmarco_v2\.1_doc_\d\d_\d+"
MS_MARCO_SEGMENT_PATTERN = rf"{MS_MARCO_DOCUMENT_PATTERN}#\d+_\d+"
"""A regular expression for its segment ids. The second number is not an offset, so ids cannot be derived."""

SHORT_LINE_CHARACTERS = 48
"""A line up to this length is a heading, an item or the end of a paragraph, unless it ends with a comma."""

_STOP = re.compile(r"""[.!?\u061f\u06d4\u0964\u0965]['")\]\u201d\u2019]*(?=\s)""")
"""The stops of Latin, Arabic, Urdu and Indic scripts, before white space."""
_WIDE_STOP = re.compile(r"""[\u3002\uff01\uff1f\uff61]+['")\]\u201d\u2019\u300d\u300f\uff09\u3011]*""")
"""The stops of Chinese and Japanese, which no white space follows."""
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|cf|vs|al|approx|Fig|No|Dr|Mr|Mrs|Ms|Prof|St|U\.S|[A-Z])|\b[A-Z]\.[A-Z] )\.$"
)
"""The end of an abbreviation. In texts with spaces before stops, "U.S ." is one too."""
_NEXT = re.compile(r"""\s+(?:['"(\[\u201c\u2018*`-]*[^\sa-z'"(\[\u201c\u2018]|$)""")


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Trimmed sentences as (start, end): they end by punctuation, at a blank line, or after a short line."""
    stops = {
        match.end()
        for match in _STOP.finditer(text)
        if _NEXT.match(text, match.end()) and not _ABBREVIATION.search(text, max(0, match.end() - 12), match.end())
    }
    if not text.isascii():
        stops.update(match.end() for match in _WIDE_STOP.finditer(text))
    stops.update(_find_short_lines(text))
    spans: list[tuple[int, int]] = []
    start = 0
    for stop in [*sorted(stops), len(text)]:
        _add_trimmed(spans, text, start, stop)
        start = stop
    return spans


def _find_short_lines(text: str) -> Iterator[int]:
    start = 0
    while (end := text.find("\n", start) + 1) > 0:
        line = text[start:end].strip()
        if len(line) <= SHORT_LINE_CHARACTERS and not line.endswith(","):
            yield end
        start = end


def _add_trimmed(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    stripped = piece.strip()
    if stripped:
        begin = start + piece.index(stripped)
        spans.append((begin, begin + len(stripped)))


def make_windows(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Windows of sentences, one every `STRIDE_SENTENCES`, as (start, end); the last one ends with the last sentence."""
    found = []
    for first in range(0, len(spans), STRIDE_SENTENCES):
        chunk = spans[first : first + WINDOW_SENTENCES]
        found.append((chunk[0][0], chunk[-1][1]))
        if first + WINDOW_SENTENCES >= len(spans):
            break
    return found


def cut_segments(document: Document) -> Document:
    """The document with segments: its own if it has any, else windows with the ids `docid#wNUMBER_START`.

    By the `w`, readers and validators distinguish windows from official segments. A document with the id of a segment
    of MS MARCO V2.1 has one segment: itself.
    """
    if document.segments:
        return document
    if re.fullmatch(MS_MARCO_SEGMENT_PATTERN, document.id):
        return replace(document, segments=(Segment(document.id, Span(document.id, 0, len(document.text))),))
    spans = make_windows(split_sentences(document.text)) or [(0, len(document.text))]
    segments = tuple(
        Segment(f"{document.id}#w{number}_{start}", Span(document.id, start, end))
        for number, (start, end) in enumerate(spans)
    )
    return replace(document, segments=segments)


def is_window(segment_id: str) -> bool:
    """Whether an id is that of a window that `cut_segments` made."""
    return bool(re.search(r"#w\d+_\d+\Z", segment_id))


def refuse_windows(document: Document, segments: Path | None = None) -> None:
    """Raise `UserError` for windows that cut MS MARCO V2.1; `segments` should have held its official segments."""
    if re.fullmatch(MS_MARCO_DOCUMENT_PATTERN, document.id) and is_window(document.segments[0].id):
        where = f"{document.place}: " if document.place else ""
        none = f"{where}document {document.id} has no official segment"
        if segments:
            raise UserError(
                f"{none}: {segments} holds none that fits its text. No track knows windows that Keystone cuts: "
                "complete that file, or ask for windows with --windows"
            )
        raise UserError(
            f"{none}, and no track knows windows that Keystone cuts: "
            "name the file of its official segments with --segments, or ask for windows with --windows"
        )
