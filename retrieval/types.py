"""Topics, queries, and rankings of documents for a whole batch of queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Statistics = Literal["global", "local"]
"""Whether a word's weight comes from all shards, which are then asked twice, or from the document's own alone."""

Columns = tuple[NDArray[np.int32], NDArray[np.float32]]
"""The engine's own numbers of documents, and the scores of a query's hits, best first."""


@dataclass(frozen=True, slots=True)
class Topic:
    """What a user asks: the narrative, word for word."""

    id: str
    narrative: str
    place: str = field(default="", compare=False)
    """The file and line where it stands."""
    record: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """Its object, where the file has such, with all keys."""


@dataclass(frozen=True, slots=True)
class Query:
    """One search for a topic: the question, and its texts for BM25 and for the embedding model."""

    topic_id: str
    id: str
    question: str
    sparse_text: str
    dense_text: str


@dataclass(frozen=True, slots=True)
class Rankings:
    """One ranking a query, columnar: query i owns `docs[offsets[i]:offsets[i + 1]]` and the scores beside them.

    `docs` are rows of the document store. Each ranking is ordered by score down, then row up, which is
    ascending document id; make one from unordered hits with `ranked`.
    """

    query_ids: tuple[str, ...]
    offsets: NDArray[np.int64]
    docs: NDArray[np.int32]
    scores: NDArray[np.floating[Any]]

    def __len__(self) -> int:
        return len(self.query_ids)

    def of(self, i: int) -> NDArray[np.int32]:
        """The documents of query i, best first."""
        return self.docs[self.offsets[i] : self.offsets[i + 1]]

    def scores_of(self, i: int) -> NDArray[np.floating[Any]]:
        """The scores of query i, beside `of(i)`."""
        return self.scores[self.offsets[i] : self.offsets[i + 1]]

    def top(self, depth: int) -> "Rankings":
        """The first `depth` documents of every query."""
        counts = np.minimum(np.diff(self.offsets), depth)
        kept = [slice(start, start + count) for start, count in zip(self.offsets, counts, strict=False)]
        return Rankings(
            self.query_ids,
            offsets_of(counts),
            np.concatenate([self.docs[s] for s in kept]) if kept else self.docs[:0],
            np.concatenate([self.scores[s] for s in kept]) if kept else self.scores[:0],
        )


def offsets_of(counts: Sequence[int] | NDArray[np.integer[Any] | np.bool_]) -> NDArray[np.int64]:
    """Where each of the runs of these lengths begins, and where the last one ends: int64[len(counts) + 1]."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def ranked(
    query_ids: Sequence[str],
    docs: Sequence[NDArray[np.integer[Any]]],
    scores: Sequence[NDArray[np.floating[Any]]],
    depth: int,
) -> Rankings:
    """Rankings from the unordered hits of each query, cut at `depth`; a document occurs once a query.

    Hits whose scores descend already, as search engines give them, are only put in order where scores are equal.
    """
    if not docs:
        return Rankings(tuple(query_ids), offsets_of([]), np.empty(0, np.int32), np.empty(0, np.float32))
    ordered = [_in_order(d, s, depth) for d, s in zip(docs, scores, strict=True)]
    return Rankings(
        tuple(query_ids),
        offsets_of([len(d) for d, _ in ordered]),
        np.concatenate([d for d, _ in ordered]).astype(np.int32, copy=False),
        np.concatenate([s for _, s in ordered]),
    )


def _in_order(
    docs: NDArray[np.integer[Any]], scores: NDArray[np.floating[Any]], depth: int
) -> tuple[NDArray[np.integer[Any]], NDArray[np.floating[Any]]]:
    above, below = scores[:-1], scores[1:]
    if not np.all(above >= below):
        order = np.lexsort((docs, -scores))[:depth]
        return docs[order], scores[order]
    equal = above == below
    if equal.any():
        tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
        docs = docs.copy()
        docs[tied] = docs[tied][np.lexsort((docs[tied], -scores[tied]))]
    return docs[:depth], scores[:depth]
