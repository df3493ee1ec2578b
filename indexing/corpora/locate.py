"""Official segments of a document, found in its text: by their offsets where these fit, else by their own text."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from indexing.errors import BadRecord, Report
from indexing.types import Document, Segment, Span

OVERLAP = 16
"""How often the segments of a document may tell its text, all together; windows of ten sentences every five: twice."""
SHORT = 1_000
"""Characters by which a text counts as longer than it is where lengths are compared, so that short ones have room."""
MISSES = 100
"""Vain searches through a document after which its other segments, too, count as missing from it."""

_NUMBER = re.compile(r"#([0-9]{1,18})(?:_[0-9]*)?\Z")


class Cut(NamedTuple):
    """An official segment as its file has it: offsets in its document, its text, or both."""

    id: str
    start: int | None
    end: int | None
    text: str | None


def located(document: Document, cuts: Iterable[Cut], report: Report) -> tuple[Segment, ...]:
    """The segments in the order of the text; one that is not in its document goes to the report and is left out.

    Offsets count where they hold the segment's text, but for white space. A text is looked for from the beginning of
    the segment before on, since segments overlap: exactly, then without regard to white space. The time is linear in
    the lengths of the document and the segments.
    """
    places = _Places(document.text)
    found: list[Segment] = []
    told, most = 0, OVERLAP * (len(document.text) + SHORT)
    for cut in sorted(cuts, key=_number):
        span = places.of(cut)
        if span is None:
            report(_missing(document, cut))
            continue
        told += span[1] - span[0]
        if told > most:
            message = f"{document.place}: segment {cut.id}: all segments tell their document more than {OVERLAP} times"
            report(BadRecord(message, "too much overlap"))
            continue
        found.append(Segment(cut.id, Span(document.id, *span)))
    return tuple(sorted(found, key=lambda segment: segment.span.start))


def _number(cut: Cut) -> int:
    found = _NUMBER.search(cut.id)
    return int(found[1]) if found else 0


def _missing(document: Document, cut: Cut) -> BadRecord:
    if cut.end is None:
        return BadRecord(f"{document.place}: segment {cut.id}: its text is not in its document", "segment not found")
    if cut.end > len(document.text):
        found = f"ends at {cut.end}, but its document has {len(document.text)} characters"
    else:
        found = f"from {cut.start} to {cut.end} its document has another text"
    return BadRecord(f"{document.place}: segment {cut.id} {found}", "bad offsets")


class _Places:
    """Finds one segment after the other in a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._misses = 0
        self._plain: _WithoutSpace | None = None

    def of(self, cut: Cut) -> tuple[int, int] | None:
        span = self._said(cut) or (self._sought(cut.text) if cut.text and cut.text.strip() else None)
        if span:
            self._at = span[0]
        return span

    def _said(self, cut: Cut) -> tuple[int, int] | None:
        """The offsets of the file, where they fit."""
        start, end, text = cut.start, cut.end, cut.text
        if start is None or end is None or end > len(self._text):
            return None
        if text is None or (end - start == len(text) and self._text.startswith(text, start)):
            return start, end
        like = end - start <= 2 * (len(text) + SHORT) and _plain(self._text[start:end]) == _plain(text)
        return (start, end) if like else None

    def _sought(self, text: str) -> tuple[int, int] | None:
        if self._plain is None:
            start = self._text.find(text, self._at)
            if start >= 0:
                return start, start + len(text)
            self._plain = _WithoutSpace(self._text)
        plain = _plain(text)
        for first in (self._at, 0):
            if self._misses < MISSES:
                if span := self._plain.find(plain, first):
                    return span
                self._misses += 1
        return None


class _WithoutSpace:
    """A text without white space, and where its characters stand in the text."""

    def __init__(self, text: str) -> None:
        runs = [match.span() for match in re.finditer(r"\S+", text)]
        self._plain = _plain(text)
        self._starts = [start for start, _ in runs]
        self._before = list(accumulate((end - start for start, end in runs), initial=0))

    def find(self, text: str, first: int) -> tuple[int, int] | None:
        """Where a text without white space stands, looked for from a place of the whole text on."""
        run = bisect_right(self._starts, first) - 1
        inside = max(0, self._before[run] + first - self._starts[run]) if run >= 0 else 0
        start = self._plain.find(text, min(inside, self._before[run + 1]))
        return (self._place(start), self._place(start + len(text) - 1) + 1) if start >= 0 else None

    def _place(self, plain: int) -> int:
        run = bisect_right(self._before, plain) - 1
        return self._starts[run] + plain - self._before[run]


def _plain(text: str) -> str:
    return "".join(text.split())
