"""Two documents about animals whose segments are single sentences, each with a direction of its own as its vector."""

from collections.abc import Sequence

import numpy as np

from keystone.generation.answers.cite import list_segments
from keystone.generation.context.topic import TopicContext
from keystone.indexing.embedder import Vectors
from keystone.indexing.types import Document, Segment, Span
from keystone.retrieval.types import Query

BEES = ["Bees dance for food.", "Drones leave in autumn.", "A queen lays 2,000 eggs.", "Wax is made of honey."]
ANTS = ["Ants walk to food.", "Soldiers guard the nest."]
DIMENSION = 8


def make_document(name: str, sentences: list[str]) -> Document:
    starts = np.cumsum([0, *(len(text) + 1 for text in sentences)]).tolist()
    segments = tuple(
        Segment(f"{name}#{n}", Span(name, starts[n], starts[n] + len(text))) for n, text in enumerate(sentences)
    )
    return Document(id=name, title=name, text=" ".join(sentences), segments=segments)


def make_context(further: Sequence[Document] = ()) -> TopicContext:
    """Make the context of one query. The segments of further documents all have the direction of the last one."""
    documents = dict(enumerate([make_document("bees", BEES), make_document("ants", ANTS), *further]))
    every = np.eye(DIMENSION, dtype=np.float32)
    vectors = {row: every[-1:].repeat(len(document.segments), 0) for row, document in documents.items()}
    query = Query("1", "1-1", "Q?", "Q", "Q")
    return TopicContext(documents, {**vectors, 0: every[:4], 1: every[4:6]}, [query], every[:1])


def toward(*places: int) -> Vectors:
    """Vectors in the directions of these segments, numbered from 0 over both documents."""
    return np.eye(DIMENSION, dtype=np.float32)[list(places)]


SEGMENTS = list_segments(make_context())
