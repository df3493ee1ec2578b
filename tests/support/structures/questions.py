"""Questions about documents in memory. No index stands behind them, so nothing can be embedded."""

from collections.abc import Mapping

import numpy as np

from keystone.generation.context.topic import TopicContext
from keystone.generation.readers.structure_reader import Question
from keystone.indexing.types import Document, Segment, Span
from keystone.retrieval.types import Query


def make_question(text: str, documents: Mapping[str, str], id: str = "1#0") -> Question:
    """Make a question about documents, by id; each is one segment, and all are equally close to the question."""
    rows = range(len(documents))
    vector = np.ones(1, np.float32)
    context = TopicContext(
        {
            row: Document(name, body, segments=(Segment(f"{name}#0", Span(name, 0, len(body))),))
            for row, (name, body) in zip(rows, documents.items(), strict=True)
        },
        {row: np.ones((1, 1), np.float32) for row in rows},
        [Query("1", id, text, text, text)],
        vector[None, :],
    )
    return Question("1", id, text, vector, context, tuple(rows))
