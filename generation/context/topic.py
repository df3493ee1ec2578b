"""The documents of a topic with the vectors of their segments, and the stretches of them that a model is shown.

Whole documents can be longer than a model's window. The stretches are segments, or whole blocks with the headings that
they stand under. No stretch of blocks begins or ends within one, unless the block is too long for its room.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from keystone.fusion.closest import choose_closest_segments
from keystone.generation.context.blocks import GAP_MARK, Stretch, count_stretch, list_blocks, touches
from keystone.generation.context.texts import clip, convert_weight, count_tokens, weigh_prefixes
from keystone.generation.types import Evidence
from keystone.indexing.corpora.languages import guess_language
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.embedder import Vectors
from keystone.indexing.index import Index
from keystone.indexing.types import Document, Embedding, Span, Store
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.vectors.of_segments import segment_vectors, sentence_vectors
from keystone.retrieval.types import Query


@dataclass(frozen=True, slots=True)
class Sources:
    """The index and the store that documents and vectors are read from."""

    index: Index
    store: Store
    threads: int = 1

    @property
    def embedding(self) -> Embedding:
        """The embedding by which texts are compared: that of the index, or of words if it has no model."""
        return self.index.compares_by


@dataclass(frozen=True, slots=True)
class TopicContext:
    """The documents of a topic by row, each with the vectors of its segments, and the topic's queries with theirs.

    `segments` has float32[segments, d] for each row of `documents`, in the same order; `query_vectors` is
    float32[queries, d].
    """

    documents: dict[int, Document]
    segments: dict[int, Vectors]
    queries: Sequence[Query]
    query_vectors: Vectors
    whole: bool = True
    """Whether the whole text of a document is evidence. Otherwise only its segments are."""
    openings: Vectors | None = None
    """The vectors of the titles and openings of the documents, float32[documents, d], if rules compare them."""

    @property
    def by_id(self) -> dict[str, tuple[Document, Vectors]]:
        """The documents and the vectors of their segments, by document id."""
        return {document.id: (document, self.segments[row]) for row, document in self.documents.items()}


def skip_blank(store: Store, rows: Sequence[int], number: int) -> list[int]:
    """Leave out documents without text, which no answer can cite, until `number` documents with a text are found."""
    kept, at = list[int](), 0
    while len(kept) < number and at < len(rows):
        piece = rows[at : at + number - len(kept)]
        kept += [row for row, document in zip(piece, store.get(piece), strict=True) if document.text.strip()]
        at += len(piece)
    return [*kept, *rows[at:]]


def read_context(sources: Sources, rows: Sequence[int], queries: Sequence[Query]) -> TopicContext:
    """Read the documents in these rows of the store, in this order."""
    vectors = segment_vectors(sources.index, sources.store, rows, sources.threads)
    return TopicContext(
        dict(zip(rows, sources.store.get(rows), strict=True)),
        {row: vectors[row] for row in rows},
        queries,
        embed_queries(sources.embedding, [query.dense_text for query in queries], sources.threads),
    )


def keep_language(context: TopicContext, language: str) -> TopicContext:
    """Keep the documents in a language, and those whose language no rule tells. An empty `language` keeps all."""
    if not language:
        return context
    kept = {row: one for row, one in context.documents.items() if guess_language(one.text) in ("", language)}
    return replace(context, documents=kept, segments={row: context.segments[row] for row in kept})


def keep_closest_segments(context: TopicContext, texts: Vectors, most: int) -> TopicContext:
    """Keep, as the only evidence, the `most` segments of each document closest to any text (float32[t, d])."""
    kept = {row: sorted(choose_closest_segments(texts, own, most)) for row, own in context.segments.items()}
    return replace(
        context,
        documents={
            row: replace(document, segments=tuple(document.segments[number] for number in kept[row]))
            for row, document in context.documents.items()
        },
        segments={row: own[kept[row]] for row, own in context.segments.items()},
        whole=False,
    )


def embed_spans(sources: Sources, context: TopicContext, spans: Sequence[Span]) -> Vectors:
    """Embed stretches of the topic's documents: float32[spans, d]. The index keeps the vectors by text."""
    texts = {document.id: document.text for document in context.documents.values()}
    return sentence_vectors(
        sources.index, [texts[span.doc_id][span.start : span.end] for span in spans], sources.threads
    )


SEGMENTS_PER_QUERY = 3
"""The segments that each query chooses, unless the caller says otherwise."""
PASSAGE_TOKENS = 2000
"""The most tokens of a passage, unless the caller says otherwise."""


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
    """Choose (start, end) for `make_passage`, in order. `ValueError` unless `cosines` has a column for each segment."""
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


LEAST_DOCUMENT_TOKENS = 64
"""The least tokens that a document may have in a prompt."""
LONG_TOKENS = 2000
"""The tokens of a document that is shown whole in any case, if there is room for it."""
LONG_SHARE = 8
"""A longer document has at most 1 / `LONG_SHARE` of the tokens of all documents, so that a book leaves room."""


def show_documents(context: TopicContext, rows: Sequence[int], queries: slice, tokens: int) -> list[Evidence]:
    """Choose the stretches of the documents in these rows that a model is shown: the whole text, or the best segments.

    `queries` selects those of `context` that rate segments. All stretches together have at most `tokens` tokens. If
    there are too many documents for `LEAST_DOCUMENT_TOKENS` each, the last ones are left out. A segment that is longer
    than its document's share is cut after a sentence, or within its first one if that alone is longer. A context that
    is not `whole` shows segments only.
    """
    rows = rows[: max(1, tokens // LEAST_DOCUMENT_TOKENS)]
    limit = tokens // max(len(rows), 1)
    return [item for row in rows for item in _show_document(context, row, queries, limit)]


def show_whole_documents(context: TopicContext, rows: Sequence[int], tokens: int) -> list[Evidence]:
    """Choose the first documents in these rows, while all together have at most `tokens` tokens.

    A document of at most `LONG_TOKENS`, or of 1 / `LONG_SHARE` of these tokens, is shown whole. A longer one is
    shown by its best stretches in that room. So is the first document that does not fit into what is left, unless
    that is less than `LEAST_DOCUMENT_TOKENS`. Those after it are left out. The room that then is left goes to the
    longer documents, in their order, so that the first of them may be whole as well.
    """
    limit, left = max(tokens // LONG_SHARE, LONG_TOKENS), tokens
    costs, rooms = dict[int, int](), dict[int, int]()
    for row in rows:
        if left < LEAST_DOCUMENT_TOKENS:
            break
        costs[row] = count_tokens(context.documents[row].contents)
        rooms[row] = min(costs[row], limit, left)
        left -= rooms[row]
    shown: list[Evidence] = []
    for row, room in rooms.items():
        limit = min(costs[row], room + left)
        left -= limit - room
        whole = limit == costs[row]
        shown += _show_document(context, row, slice(None), limit) if whole else _show_stretches(context, row, limit)
    return shown


def _show_stretches(context: TopicContext, row: int, limit: int) -> list[Evidence]:
    document, cosines = context.documents[row], context.query_vectors @ context.segments[row].T
    stretches = choose_stretches(document, cosines, limit) if context.whole else []
    if not stretches:
        return _show_document(context, row, slice(None), limit)
    query = context.queries[int(cosines.max(axis=1).argmax())]
    best = float(cosines.max())
    return [
        Evidence(Span(document.id, one.start, one.end), document.text[one.start : one.end], best, query.id, one.above)
        for one in stretches
    ]


def _show_document(context: TopicContext, row: int, queries: slice, limit: int) -> list[Evidence]:
    """Choose the stretches of a document that a model is shown, within `limit` tokens."""
    document, cosines = context.documents[row], context.query_vectors[queries] @ context.segments[row].T
    spans = [(0, len(document.text))]
    if not context.whole or count_tokens(join_spans(document, spans)) > limit:
        spans = choose_best_spans(document, cosines, None, limit)
        if spans and count_tokens(join_spans(document, spans)) > limit:
            start, end = spans[0]
            room = max(0, limit - count_tokens(document.title) - 1)
            length = len(clip(document.text[start:end], room))
            stops = [stop for _, stop in split_sentences(document.text[start:end]) if stop <= length]
            spans = [(start, start + (stops[-1] if stops else length))]
    query = context.queries[queries][int(cosines.max(axis=1).argmax())]
    return [
        Evidence(Span(document.id, start, end), document.text[start:end], float(cosines.max()), query.id)
        for start, end in spans
    ]


class PlacedSegments:
    """The segments of a document by their places. Those around a stretch are found without a look at all others."""

    def __init__(self, document: Document) -> None:
        spans = [segment.span for segment in document.segments]
        self._numbers = sorted(range(len(spans)), key=lambda number: spans[number].start)
        self._starts = [spans[number].start for number in self._numbers]
        self._ends = [spans[number].end for number in self._numbers]
        self._furthest = list(accumulate(self._ends, max))

    def find_holding(self, start: int, end: int) -> list[int]:
        """Find the numbers of the segments that hold a stretch, in their order."""
        places = range(bisect_left(self._furthest, end), bisect_right(self._starts, start))
        return sorted(self._numbers[place] for place in places if self._ends[place] >= end)

    def find_overlapping(self, start: int, end: int) -> list[int]:
        """Find the numbers of the segments that share a character with a stretch, in their order."""
        places = range(bisect_right(self._furthest, start), bisect_left(self._starts, end))
        return sorted(self._numbers[place] for place in places if self._ends[place] > start)


def choose_stretches(document: Document, cosines: Vectors, tokens: int) -> list[Stretch]:
    """Choose the blocks of a document for several queries, within `tokens` tokens with their headings and the title.

    `cosines` is float[queries, segments]. A block rates as the best segment that it overlaps. The best block of each
    query comes first, then the second best of each. Ties go to the closer block, then to the earlier one. A block that
    does not fit any more is left out. Blocks under the same heading that touch become one stretch.

    A block that exceeds the room, or `LONG_TOKENS` if those are more, is cut into pieces, each a block of its own.
    Where that fills less than half of a smaller room, so is a block that exceeds the room.
    """
    room = tokens - count_tokens(document.title)
    placed = PlacedSegments(document)
    for most in (room if tokens >= LONG_TOKENS else LONG_TOKENS, room):
        blocks = list_blocks(document, most)
        if not blocks or not len(document.segments):
            return []
        held = [placed.find_overlapping(block.start, block.end) for block in blocks]
        rows = np.array([cosines[:, own].max(axis=1, initial=-1.0) for own in held]).T
        places = np.argsort(np.argsort(-rows, axis=1, kind="stable"), axis=1).min(axis=0)
        chosen, left = set[int](), room
        for place in sorted(range(len(blocks)), key=lambda n: (places[n], -rows[:, n].max(), n)):
            cost = _count_added(document.text, blocks, chosen, place)
            if cost <= left:
                chosen.add(place)
                left -= cost
        if 2 * left <= room:
            break
    found: list[Stretch] = []
    for place in sorted(chosen):
        block = blocks[place]
        if found and place - 1 in chosen and touches(found[-1], block):
            found[-1] = found[-1]._replace(end=block.end)
        else:
            found.append(block)
    return found


def _count_added(text: str, blocks: Sequence[Stretch], chosen: AbstractSet[int], place: int) -> int:
    """Count the tokens that a block adds to the chosen ones. A piece that touches them needs nothing above it."""
    block, alone = blocks[place], count_stretch(text, blocks[place])
    before = place - 1 in chosen and touches(blocks[place - 1], block)
    after = place + 1 in chosen and touches(block, blocks[place + 1])
    if not before and not after:
        return alone
    start = blocks[place - 1].end if before else block.start
    joined = count_tokens(text[start : blocks[place + 1].start if after else block.end])
    return max(alone, joined) if block.head is None else joined
