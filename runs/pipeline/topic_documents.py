"""What grades and answers of a topic are made from: documents, and the vectors that choose among their segments."""

from collections.abc import Sequence
from dataclasses import dataclass

from indexing.types import Document
from indexing.vectors.embed import embed_queries
from indexing.vectors.of_segments import segment_vectors
from indexing.vectors.types import Vectors
from retrieval.types import Query
from runs.pipeline.job import Job


@dataclass(frozen=True, slots=True)
class Material:
    """The documents of a topic, by row, with their segments' vectors; its queries with theirs."""

    documents: dict[int, Document]
    segments: dict[int, Vectors]
    queries: list[Query]
    asked: Vectors


def gathered(job: Job, rows: Sequence[int], queries: list[Query]) -> Material:
    """The documents in these rows of the store, in this order, and what belongs to them."""
    return Material(
        dict(zip(rows, job.store.get(rows), strict=True)),
        segment_vectors(job.index, job.store, rows, job.threads),
        queries,
        embed_queries(job.embedding, [query.dense_text for query in queries], job.threads),
    )
