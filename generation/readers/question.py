"""The questions that a structure-aware reader reads for: a narrative, or each of its queries."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keystone.generation.context.topic import TopicContext
from keystone.generation.readers.reader import Hits, Task, Tools
from keystone.indexing.types import Document, Span
from keystone.indexing.vectors.embed import embed_queries


@dataclass(frozen=True, slots=True)
class Question:
    """A question with the documents to read, best first, and its vector, float32[d].

    `query_id` is empty if the question is the whole narrative.
    """

    topic_id: str
    query_id: str
    text: str
    vector: NDArray[np.float32]
    context: TopicContext
    rows: tuple[int, ...]

    @property
    def documents(self) -> list[Document]:
        """The documents to read, best first."""
        return [self.context.documents[row] for row in self.rows]

    def find_closest_segments(self, row: int, most: int) -> list[Span]:
        """Find the `most` segments of a document that are closest to the question, the closest first.

        Ties go to the earlier segment. A document without segments is one stretch.
        """
        document = self.context.documents[row]
        if not document.segments:
            return [Span(document.id, 0, len(document.text))]
        order = np.argsort(-(self.context.segments[row] @ self.vector), kind="stable")[:most]
        return [document.segments[number].span for number in order.tolist()]


def list_questions(tools: Tools, task: Task, hits: Hits) -> list[Question]:
    """List the questions of a task: the narrative with one list of documents, or each query with its own.

    The queries of `task.context` and the lists of `hits` are in the same order.
    """
    context = task.context
    if tools.settings.is_by_query:
        return [
            Question(task.topic.id, query.id, query.question, vector, context, rows)
            for query, vector, rows in zip(context.queries, context.query_vectors, hits, strict=True)
        ]
    (vector,) = embed_queries(tools.sources.embedding, [task.topic.narrative], tools.sources.threads)
    return [Question(task.topic.id, "", task.topic.narrative, vector, context, rows) for rows in hits]


def find_best_query(context: TopicContext, vectors: Sequence[NDArray[np.float32]]) -> list[str]:
    """Find for each vector the id of the query that is closest to it."""
    if not len(vectors):
        return []
    best = (np.asarray(vectors) @ context.query_vectors.T).argmax(axis=1)
    return [context.queries[int(place)].id for place in best]
