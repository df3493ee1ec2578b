"""Finding the official segments of a document in its text: by their offsets if these fit, else by their own text."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from keystone.indexing.errors import BadRecord, Report
from keystone.indexing.types import Document, Segment, Span

MOST_COVERAGE_RATIO = 16
"""The summed length of a document's segments, over that of the document. Windows of ten sentences every five have 2."""
SLACK_CHARACTERS = 1_000
"""Added to a length before it bounds another one, so that short texts pass."""
MOST_MISSES = 100
"""After this number of unsuccessful searches through a document, its other segments count as missing, too."""

_NUMBER = re.compile(r"#([0-9]{1,18})(?:_[0-9]*)?\Z")


class SegmentRecord(NamedTuple):
    """An official segment as a file describes it: by offsets in its document, by its text, or by both."""

    id: str
    start: int | None
    end: int | None
    text: str | None


def locate_segments(document: Document, cuts: Iterable[SegmentRecord], report: Report) -> tuple[Segment, ...]:
    """The segments of a document in the order of its text. The function reports and skips a segment that is not in it.

    Offsets fit if the document has the segment's text there, apart from white space. Otherwise the function searches
    for the segment's text: exactly, then without white space. The search begins where the segment before begins, since
    segments overlap. The time is linear in the lengths of the document and the segments.
    """
    places = _Locator(document.text)
    found: list[Segment] = []
    covered, most = 0, MOST_COVERAGE_RATIO * (len(document.text) + SLACK_CHARACTERS)
    for cut in sorted(cuts, key=_number_of):
        span = places.of(cut)
        if span is None:
            report(_missing_error(document, cut))
            continue
        covered += span[1] - span[0]
        if covered > most:
            excess = f"with it, the segments have more than {MOST_COVERAGE_RATIO} times the length of their document"
            report(BadRecord(f"{document.place}: segment {cut.id}: {excess}", "too much overlap"))
            continue
        found.append(Segment(cut.id, Span(document.id, *span)))
    return tuple(sorted(found, key=lambda segment: segment.span.start))


def _number_of(cut: SegmentRecord) -> int:
    found = _NUMBER.search(cut.id)
    return int(found[1]) if found else 0


def _missing_error(document: Document, cut: SegmentRecord) -> BadRecord:
    if cut.end is None:
        return BadRecord(f"{document.place}: segment {cut.id}: its text is not in its document", "segment not found")
    if cut.end > len(document.text):
        found = f"ends at {cut.end}, but its document has {len(document.text)} characters"
    else:
        found = f"from {cut.start} to {cut.end} its document has another text"
    return BadRecord(f"{document.place}: segment {cut.id} {found}", "bad offsets")


class _Locator:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._misses = 0
        self._plain: _CompactText | None = None

    def of(self, cut: SegmentRecord) -> tuple[int, int] | None:
        span = self._check_offsets(cut) or (self._search(cut.text) if cut.text and cut.text.strip() else None)
        if span:
            self._at = span[0]
        return span

    def _check_offsets(self, cut: SegmentRecord) -> tuple[int, int] | None:
        """The offsets that the segment states; None if they do not fit."""
        start, end, text = cut.start, cut.end, cut.text
        if start is None or end is None or end > len(self._text):
            return None
        if text is None or (end - start == len(text) and self._text.startswith(text, start)):
            return start, end
        alike = end - start <= 2 * (len(text) + SLACK_CHARACTERS) and _remove_space(
            self._text[start:end]
        ) == _remove_space(text)
        return (start, end) if alike else None

    def _search(self, text: str) -> tuple[int, int] | None:
        if self._plain is None:
            start = self._text.find(text, self._at)
            if start >= 0:
                return start, start + len(text)
            self._plain = _CompactText(self._text)
        plain = _remove_space(text)
        for first in (self._at, 0):
            if self._misses < MOST_MISSES:
                if span := self._plain.find(plain, first):
                    return span
                self._misses += 1
        return None


class _CompactText:
    """A text without its white space, and the places of its characters in the whole text."""

    def __init__(self, text: str) -> None:
        runs = [match.span() for match in re.finditer(r"\S+", text)]
        self._plain = _remove_space(text)
        self._starts = [start for start, _ in runs]
        self._before = list(accumulate((end - start for start, end in runs), initial=0))

    def find(self, text: str, first: int) -> tuple[int, int] | None:
        """The span of a text without white space in the whole text, at or after the place `first`; None if absent."""
        run = bisect_right(self._starts, first) - 1
        inside = max(0, self._before[run] + first - self._starts[run]) if run >= 0 else 0
        start = self._plain.find(text, min(inside, self._before[run + 1]))
        return (self._place(start), self._place(start + len(text) - 1) + 1) if start >= 0 else None

    def _place(self, plain: int) -> int:
        run = bisect_right(self._before, plain) - 1
        return self._starts[run] + plain - self._before[run]


def _remove_space(text: str) -> str:
    return "".join(text.split())
