"""The part of each document that a model is shown, so that all documents of a prompt fit its window."""

from collections.abc import Sequence

from keystone.generation.context.passages import choose_best_spans, join_spans
from keystone.generation.context.stretches import choose_stretches
from keystone.generation.context.tokens import clip, count_tokens
from keystone.generation.context.topic import TopicContext
from keystone.generation.types import Evidence
from keystone.indexing.types import Span

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
    than its document's share is cut. A context that is not `whole` shows segments only.
    """
    rows = rows[: max(1, tokens // LEAST_DOCUMENT_TOKENS)]
    limit = tokens // max(len(rows), 1)
    return [item for row in rows for item in _show_document(context, row, queries, limit)]


def show_whole_documents(context: TopicContext, rows: Sequence[int], tokens: int) -> list[Evidence]:
    """Choose the first documents in these rows, while all together have at most `tokens` tokens.

    A document of at most `LONG_TOKENS`, or of 1 / `LONG_SHARE` of these tokens, is shown whole. A longer one is
    shown by its best stretches in that room: see `keystone.generation.context.stretches`. So is the first document that
    does not fit into what is left, unless that is less than `LEAST_DOCUMENT_TOKENS`. Those after it are left out.
    """
    shown: list[Evidence] = []
    limit, left = max(tokens // LONG_SHARE, LONG_TOKENS), tokens
    for row in rows:
        if left < LEAST_DOCUMENT_TOKENS:
            break
        cost = count_tokens(context.documents[row].contents)
        room = min(limit, left)
        whole = cost <= room
        shown += _show_document(context, row, slice(None), room) if whole else _show_stretches(context, row, room)
        left -= min(cost, room)
    return shown


def _show_stretches(context: TopicContext, row: int, limit: int) -> list[Evidence]:
    """Choose the stretches of a long document that a model is shown, within `limit` tokens."""
    document, cosines = context.documents[row], context.query_vectors @ context.segments[row].T
    stretches = choose_stretches(document, cosines, limit) if context.whole else []
    if not stretches:
        return _show_document(context, row, slice(None), limit)
    query = context.queries[int(cosines.max(axis=1).argmax())]
    best = float(cosines.max())
    return [
        Evidence(Span(document.id, start, end), document.text[start:end], best, query.id, heading)
        for start, end, heading in stretches
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
            spans = [(start, start + len(clip(document.text[start:end], room)))]
    query = context.queries[queries][int(cosines.max(axis=1).argmax())]
    return [
        Evidence(Span(document.id, start, end), document.text[start:end], float(cosines.max()), query.id)
        for start, end in spans
    ]


def share_window(window: int, documents: int) -> int:
    """Share half of a window between documents; returns the tokens of each."""
    return window // 2 // max(documents, 1)
