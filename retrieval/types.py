"""Topics, queries, parameters of a search, and rankings of documents for a whole batch of queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.errors import UserError

Statistics = Literal["global", "local"]
"""The shards that count words: all of them, which OpenSearch asks twice, or the document's own."""

K1, B = 0.9, 0.4
"""Anserini's parameters of BM25."""

Queries = Sequence[str] | Sequence[Mapping[str, float]]
"""Queries of BM25: texts, or mappings from stems to weights."""

AnswerForm = Literal["verdict", "comparison", "reasons", "steps", "list", "example", "definition"]
"""What the answer to a question has to be."""

Columns = tuple[NDArray[np.int32], NDArray[np.float32]]
"""One query's hits, best first: the engine's own document numbers int32[hits], and scores float32[hits]."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A user's information need: an id, and the narrative word for word."""

    id: str
    narrative: str
    place: str = field(default="", compare=False)
    """The file and line that hold the topic."""
    record: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The topic's JSON object, or its row by column; empty if the file names no keys."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a question of a narrative wants: the form of its answer, its weight, and the terms to search by.

    `terms` are words that the corpus may have for what the question describes. `weight` is 1 or more.
    """

    form: AnswerForm
    weight: int = 1
    terms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """One search for a topic: the question, its text for BM25, and its text for the embedding model."""

    topic_id: str
    id: str
    question: str
    sparse_text: str
    dense_text: str
    passage: str = ""
    """A passage that answers the question, written by a model; empty if there is none."""
    ask: Ask | None = None
    """What the question wants, if a model said so."""
    translations: tuple[tuple[str, str], ...] = ()
    """Pairs of a language's code and the question in that language, by which BM25 searches its documents."""

    def search_by(self, text: str, id: str) -> "Query":
        """Search for the question by another text, as a query with this id. It has no passage and no translation."""
        return replace(self, id=id, sparse_text=text, dense_text=text, passage="", translations=())


@dataclass(frozen=True, slots=True)
class Bm25:
    """The settings of BM25 (Robertson and Zaragoza, 2009, section 3.4)."""

    k1: float = K1
    """How slowly the score of a word stops growing with the number of times that it occurs."""
    b: float = B
    """How much the length of a document counts: from 0, not at all, to 1."""
    statistics: Statistics = "global"
    """The shards of an OpenSearch index that count words; other engines have one count."""
    feedback: str | None = None
    """The pseudo-relevance feedback, `rm3` or `rocchio`, of a REST server. Elsewhere, `Bm25System` makes it."""

    def refuse_change(self, place: str) -> None:
        """Raise `UserError` for other parameters than the defaults, at a place whose parameters a run cannot set."""
        for key, found, expected in (("k1", self.k1, K1), ("b", self.b, B)):
            if found != expected:
                raise UserError(
                    f"retrieval.{key}: found {found:g}, but {place} scores by parameters that a run cannot change; "
                    f"expected {expected:g}"
                )


BM25 = Bm25()


class PassageScore(NamedTuple):
    """How a document's passages give its dense score: (1 - first_weight) * mean of the best + first_weight * first."""

    best: int = 1
    """The mean is that of this many of the document's best passages, or of all if it has fewer."""
    first_weight: float = 0.0
    """The weight of the document's first passage, from 0 to 1."""


BEST_PASSAGE = PassageScore()


@dataclass(frozen=True, slots=True)
class Rankings:
    """One ranking per query, in columns: query i owns `docs[offsets[i]:offsets[i + 1]]` and the scores beside them.

    `query_ids` holds q ids. `offsets` is int64[q + 1], `docs` int32[n] are rows of the document store, and `scores`
    is float[n]. Each ranking is ordered by score down, then row up. Rows ascend with document ids, so a tie goes to
    the smaller id. To rank unordered hits, call `ranked`.

    The constructor raises `ValueError` if the columns do not fit together or a ranking is out of order. It names the
    query. NaN has no order, so it also raises `ValueError`.
    """

    query_ids: tuple[str, ...]
    offsets: NDArray[np.int64]
    docs: NDArray[np.int32]
    scores: NDArray[np.floating[Any]]

    def __post_init__(self) -> None:
        _check_offsets(self)
        _check_order(self)

    def __len__(self) -> int:
        return len(self.query_ids)

    def of(self, i: int) -> NDArray[np.int32]:
        """Return the documents of query i, best first: int32[hits]."""
        return self.docs[self.offsets[i] : self.offsets[i + 1]]

    def scores_of(self, i: int) -> NDArray[np.floating[Any]]:
        """Return the scores of query i, beside `of(i)`: float[hits]."""
        return self.scores[self.offsets[i] : self.offsets[i + 1]]

    def select(self, places: Sequence[int]) -> "Rankings":
        """Return the rankings of the queries at these places, in their order."""
        return Rankings(
            tuple(self.query_ids[place] for place in places),
            offsets_of([len(self.of(place)) for place in places]),
            np.concatenate([self.docs[:0], *(self.of(place) for place in places)]),
            np.concatenate([self.scores[:0], *(self.scores_of(place) for place in places)]),
        )

    def top(self, depth: int | Sequence[int]) -> "Rankings":
        """Return the rankings with at most the first `depth` documents of each query. Each may have its own depth."""
        found = np.diff(self.offsets)
        counts = np.minimum(found, depth)
        kept = np.arange(len(self.docs)) < np.repeat(self.offsets[:-1] + counts, found)
        return Rankings(self.query_ids, offsets_of(counts), self.docs[kept], self.scores[kept])


def _check_offsets(rankings: Rankings) -> None:
    offsets, docs, scores = rankings.offsets, rankings.docs, rankings.scores
    if len(offsets) != len(rankings.query_ids) + 1:
        raise ValueError(f"found {len(offsets)} offsets for {len(rankings.query_ids)} queries, expected one more")
    if (falling := np.flatnonzero(offsets[1:] < offsets[:-1])).size:
        raise ValueError(f"query {rankings.query_ids[falling[0]]}: its offsets descend")
    if offsets[0] != 0 or not offsets[-1] == len(docs) == len(scores):
        found = f"{offsets[0]} to {offsets[-1]} for {len(docs)} documents and {len(scores)} scores"
        raise ValueError(f"found offsets from {found}, expected offsets from 0 to the length of both columns")


def _check_order(rankings: Rankings) -> None:
    """Raise `ValueError` for the first query whose hits are not ordered by score down, then row up.

    One comparison per pair of neighbours suffices for strictly descending scores; only ties compare rows too.
    """
    offsets, docs, scores = rankings.offsets, rankings.docs, rankings.scores
    if np.isnan(scores[offsets[:-1][np.diff(offsets) == 1]]).any():
        single = next(i for i in range(len(rankings)) if np.isnan(rankings.scores_of(i)).any())
        raise ValueError(f"query {rankings.query_ids[single]}: a score is not a number")
    descends = scores[:-1] > scores[1:]
    starts = offsets[1:-1]
    descends[starts[(starts > 0) & (starts < len(scores))] - 1] = True
    ties = np.flatnonzero(~descends)
    wrong = ties[(scores[ties] != scores[ties + 1]) | (docs[ties] >= docs[ties + 1])]
    if wrong.size:
        query = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
        raise ValueError(
            f"query {rankings.query_ids[query]}: hit {wrong[0] - offsets[query] + 2} is out of order: "
            "expected score down, then row up"
        )


def offsets_of(counts: Sequence[int] | NDArray[np.integer[Any] | np.bool_]) -> NDArray[np.int64]:
    """Return the start of each of n consecutive parts with these lengths, then the end: int64[n + 1]."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def join_rankings(parts: Sequence[Rankings]) -> Rankings:
    """Join the rankings of some queries and of the queries after them."""
    return Rankings(
        tuple(name for part in parts for name in part.query_ids),
        offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
        np.concatenate([part.docs for part in parts]),
        np.concatenate([part.scores for part in parts]),
    )


def ranked(
    query_ids: Sequence[str],
    docs: Sequence[NDArray[np.integer[Any]]],
    scores: Sequence[NDArray[np.floating[Any]]],
    depth: int,
) -> Rankings:
    """Make rankings from each query's hits in any order, cut at `depth`.

    `docs[i]` int[hits] and `scores[i]` float[hits] belong to `query_ids[i]`; a document occurs once per query. If the
    scores descend already, as search engines give them, the function only sorts the hits with equal scores.
    `ValueError` if a document occurs twice with one score, or a score is NaN.
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
    if not (above > below).all():
        if not (above >= below).all():
            order = np.lexsort((docs, -scores))[:depth]
            return docs[order], scores[order]
        tied = np.zeros(len(scores), dtype=bool)
        tied[:-1] = equal = above == below
        tied[1:] |= equal
        docs = docs.copy()
        docs[tied] = docs[tied][np.lexsort((docs[tied], -scores[tied]))]
    return docs[:depth], scores[:depth]
