"""The part of each document that a model is shown, so that all documents of a prompt fit its window."""

from collections.abc import Sequence

from generation.context.passages import choose_best_spans, join_spans
from generation.context.tokens import clip, count_tokens
from generation.context.topic import TopicContext
from generation.types import Evidence
from indexing.types import Span

LEAST_DOCUMENT_TOKENS = 64
"""Tokens that a document is shown with at least."""


def show_documents(context: TopicContext, rows: Sequence[int], asked: slice, window: int) -> list[Evidence]:
    """The stretches that a model is shown of the documents in these rows: the whole text, or the best segments.

    `asked` selects the queries of `context` that rate segments; `window` counts the model's tokens. All stretches
    together take half of the window. If there are too many documents for `LEAST_DOCUMENT_TOKENS` each, the last ones
    are left out. A segment that is longer than its document's share is cut.
    """
    rows = rows[: max(1, window // 2 // LEAST_DOCUMENT_TOKENS)]
    limit = share_window(window, len(rows))
    shown: list[Evidence] = []
    for row in rows:
        document, cosines = context.documents[row], context.query_vectors[asked] @ context.segments[row].T
        spans = [(0, len(document.text))]
        if count_tokens(join_spans(document, spans)) > limit:
            spans = choose_best_spans(document, cosines, None, limit)
            if spans and count_tokens(join_spans(document, spans)) > limit:
                start, end = spans[0]
                spans = [
                    (
                        start,
                        start + len(clip(document.text[start:end], max(0, limit - count_tokens(document.title) - 1))),
                    )
                ]
        query = context.queries[asked][int(cosines.max(axis=1).argmax())]
        shown += [
            Evidence(Span(document.id, start, end), document.text[start:end], float(cosines.max()), query.id)
            for start, end in spans
        ]
    return shown


def share_window(window: int, documents: int) -> int:
    """The tokens that each of so many documents may have in half of a window."""
    return window // 2 // max(documents, 1)
