"""The stretches of a document that are graded, because whole documents can be longer than a model's window."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from keystone.generation.context.tokens import clip, convert_weight, weigh_prefixes
from keystone.indexing.types import Document
from keystone.indexing.vectors.types import Vectors

SEGMENTS_PER_QUERY = 3
"""The segments that each query chooses, unless the caller says otherwise."""
PASSAGE_TOKENS = 2000
"""The most tokens of a passage, unless the caller says otherwise."""
GAP_MARK = "\n[...]\n"
"""The text between two stretches of a document."""


def make_passage(
    document: Document, cosines: Vectors, top: int | None = SEGMENTS_PER_QUERY, limit: int | None = PASSAGE_TOKENS
) -> str:
    """Make a passage of the document's title and its best segments, in their order, within `limit` tokens.

    `cosines` is float[s] for one query, or float[q, s] for several: the similarity of each segment of the document.
    The best segment of each query comes first, then the second best of each, up to `top`. Ties go to the closer
    segment, then to the earlier one. A segment that does not fit any more is left out. Segments that overlap or touch
    are merged, so no text is repeated; gaps are marked.

    If `top` is None, the passage is the whole text. If `limit` is None, its length has no limit.
    """
    whole = top is None or not document.segments
    text = join_spans(
        document, [(0, len(document.text))] if whole else choose_best_spans(document, cosines, top, limit)
    )
    return text if limit is None else clip(text, limit)


def choose_best_spans(
    document: Document, cosines: Vectors, top: int | None, limit: int | None
) -> list[tuple[int, int]]:
    """Choose the stretches of a document for `make_passage`, as (start, end) in order.

    `ValueError` unless `cosines` has one column for each segment.
    """
    rows = np.atleast_2d(cosines)
    if rows.shape[1] != len(document.segments):
        raise ValueError(f"{rows.shape[1]} cosines for {len(document.segments)} segments of {document.id}")
    places = np.argsort(np.argsort(-rows, axis=1, kind="stable"), axis=1).min(axis=0)
    likely = np.flatnonzero(places < (len(document.segments) if top is None else top)).tolist()
    order = sorted(likely, key=lambda segment: (places[segment], -rows[:, segment].max(), segment))
    chosen = _ChosenSpans(document)
    for segment in order:
        span = document.segments[segment].span
        chosen.add(span.start, span.end, limit)
    return list(zip(chosen.starts, chosen.ends, strict=True))


class _ChosenSpans:
    """Stretches of a document in order, merged as by `merge_spans`, with the length of the text that they make."""

    def __init__(self, document: Document) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self._before = weigh_prefixes(document.text)
        self._weight = weigh_prefixes(f"{document.title}\n")[-1] if document.title else 0

    def add(self, start: int, end: int, limit: int | None) -> None:
        """Add a stretch, unless the text then has more tokens than `limit`. The first stretch is always added."""
        first, last = bisect_left(self.ends, start), bisect_right(self.starts, end)
        touched = slice(first, last)
        gaps = bool(self.starts) - (last - first)
        weight = self._weight + gaps * len(GAP_MARK)
        for a, b in zip(self.starts[touched], self.ends[touched], strict=True):
            start, end = min(start, a), max(end, b)
            weight -= self._before[b] - self._before[a]
        weight += self._before[end] - self._before[start]
        if not self.starts or limit is None or convert_weight(weight) <= limit:
            self.starts[touched], self.ends[touched], self._weight = [start], [end], weight


def merge_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort stretches, and merge those that overlap or touch."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def join_spans(document: Document, spans: Sequence[tuple[int, int]], headings: Sequence[str] = ()) -> str:
    """Join the title and the stretches of the text, with a mark at each gap.

    If `headings` has the headings above each stretch, they stand on a line before it where they change.
    """
    parts, above = [], ""
    for place, (start, end) in enumerate(spans):
        heading = headings[place] if headings else ""
        parts.append(document.text[start:end] if heading in ("", above) else f"{heading}\n{document.text[start:end]}")
        above = heading
    text = GAP_MARK.join(parts)
    return f"{document.title}\n{text}" if document.title else text
