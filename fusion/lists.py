"""The lists to fuse, laid out so that their order in the arguments cannot change a result.

A list is the ranking of one query by one system. A group holds the lists that become one ranking. Fusion methods
compute on the table of hits: which list found which document, at which rank, with which score.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.retrieval.types import Rankings, offsets_of

Member = tuple[int, int]
"""A list: the number of its rankings, and the number of its query in them."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of lists to fuse. Each group becomes one ranking."""

    ids: Sequence[str]
    """The query id of each group's fused ranking."""
    members: Sequence[Sequence[Member]]
    """The lists of each group, beside `ids`."""
    weights: Sequence[Sequence[float]] | None = None
    """The weight of each list, beside `members`. None: all 1. A list of weight 0 is left out."""


@dataclass(frozen=True, slots=True)
class RankedLists:
    """Lists whose ranks another tool has decided: ties may stand in any order, and scores may ascend (distances).

    List i owns `docs[offsets[i]:offsets[i + 1]]` and the scores beside them.
    """

    offsets: NDArray[np.int64]
    docs: NDArray[np.int32]
    scores: NDArray[np.floating[Any]]

    def __len__(self) -> int:
        return len(self.offsets) - 1


Ranked = Rankings | RankedLists
"""Lists of documents in the order of their ranks; fusion asks for no other order."""


@dataclass(frozen=True, slots=True)
class Lists:
    """Group g owns the lists `groups[g]:groups[g + 1]`, list i the rows `starts[i]:ends[i]` of `docs`.

    The lists of a group are in the order of their weights.
    """

    docs: NDArray[np.int32]
    """The documents of all rankings, one ranking after another: int32[rows]."""
    starts: NDArray[np.int64]
    """int64[lists]."""
    ends: NDArray[np.int64]
    """int64[lists]."""
    weights: NDArray[np.float64]
    """float64[lists], above 0."""
    groups: NDArray[np.int64]
    """int64[groups + 1]."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of documents in each list: int64[lists]."""
        return self.ends - self.starts

    @property
    def group_of(self) -> NDArray[np.int64]:
        """The group of each list: int64[lists]."""
        return np.repeat(np.arange(len(self.groups) - 1), np.diff(self.groups))


def lay_out(rankings: Sequence[Ranked], groups: Groups) -> Lists:
    """Lay out each group's lists by weight, without weight 0. `ValueError` if a weight is negative or not finite."""
    sizes = [len(own) for own in groups.members]
    members = np.array([member for own in groups.members for member in own], dtype=np.int64).reshape(-1, 2)
    weights = (
        np.ones(len(members))
        if groups.weights is None
        else np.array([weight for own in groups.weights for weight in own], dtype=np.float64)
    )
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise ValueError("a weight is negative or not finite")
    queries = offsets_of([len(r) for r in rankings])[members[:, 0]] + members[:, 1]
    shifts = offsets_of([len(r.docs) for r in rankings])
    bounds = [(r.offsets[:-1] + shift, r.offsets[1:] + shift) for r, shift in zip(rankings, shifts, strict=False)]
    starts = np.concatenate([own for own, _ in bounds] or [shifts[:0]])[queries]
    ends = np.concatenate([own for _, own in bounds] or [shifts[:0]])[queries]
    group = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((weights, group))
    order = order[weights[order] > 0]
    return Lists(
        np.concatenate([r.docs for r in rankings] or [np.empty(0, np.int32)]),
        starts[order],
        ends[order],
        weights[order],
        offsets_of(np.bincount(group[order], minlength=len(sizes))),
    )


def group_queries_by_topic(
    topic_of: Sequence[str], topics: Sequence[str], weights: Sequence[float] | None = None
) -> Groups:
    """Group the queries of one ranking by topic, one group for each of `topics`.

    `topic_of[i]` is the topic of query i, and `weights[i]` its weight (None: all 1). `KeyError` for a query whose
    topic is not among `topics`.
    """
    queries: dict[str, list[int]] = {topic: [] for topic in topics}
    for query, topic in enumerate(topic_of):
        queries[topic].append(query)
    members = [[(0, query) for query in own] for own in queries.values()]
    return Groups(topics, members, [[1.0 if weights is None else weights[q] for q in own] for own in queries.values()])


Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hits:
    """A row for each pair of a document and a list, ordered by document, rank, weight and score.

    This order does not depend on the order of the lists. So the sum over a document's rows does not either, to the
    last bit.
    """

    docs: NDArray[np.int32]
    """The distinct documents of each group, ascending within it: int32[documents]."""
    groups: Integers
    """The group of each document: int64[documents]."""
    document: Integers
    """The position in `docs` of each row's document: int64[rows]."""
    list: Integers
    """The list of each row: int64[rows]."""
    ranks: Integers
    """The rank of each row's document in its list, from 1: int64[rows]."""
    scores: Floats
    """The normalised score of each row: float64[rows]."""
    lists: Lists
    """The lists themselves, with their weights and lengths."""

    @property
    def weights(self) -> Floats:
        """The weight of each row's list: float64[rows]."""
        return self.lists.weights[self.list]

    @property
    def counts(self) -> Integers:
        """The number of lists that have each document: int64[documents]."""
        return np.bincount(self.document, minlength=len(self.docs))

    @property
    def lists_with_documents(self) -> Integers:
        """The number of lists with documents in the group of each document: int64[documents]."""
        lists = self.lists
        return np.bincount(lists.group_of[lists.lengths > 0], minlength=len(lists.groups) - 1)[self.groups]

    @property
    def candidates(self) -> Integers:
        """The number of documents in each group: int64[groups]."""
        return np.bincount(self.groups, minlength=len(self.lists.groups) - 1)

    def sum_by_document(self, terms: Floats) -> Floats:
        """Add the terms (float64[rows]) of each document, row after row: float64[documents]."""
        return np.bincount(self.document, terms, minlength=len(self.docs)).astype(np.float64, copy=False)

    def take_quantile(self, share: float) -> Floats:
        """Take the score at `share` of the way from each document's lowest score to its highest: float64[documents].

        If that place lies between two scores, their mean is taken.
        """
        scores = self.scores[np.lexsort((self.scores, self.document))]
        first, steps = offsets_of(self.counts)[:-1], share * (self.counts - 1)
        below, above = np.floor(steps).astype(np.int64), np.ceil(steps).astype(np.int64)
        quantile: Floats = (scores[first + below] + scores[first + above]) / 2
        return quantile

    def add_absent_documents(self) -> "Hits":
        """Add a row for each document that a list of its group lacks, and score all rows by Borda's points.

        In a group of c documents, each list gives c points to its first document, c - 1 to its second and so on. The
        documents that a list of n lacks share the remaining points: each gets (c - n + 1) / 2. They have rank n + 1
        (Aslam and Montague, SIGIR 2001).
        """
        lists = np.diff(self.lists.groups)[self.groups]
        start, first = offsets_of(lists)[:-1], self.lists.groups[self.groups]
        document = np.repeat(np.arange(len(self.docs)), lists)
        list = np.arange(len(document)) + (first - start)[document]
        candidates, length = self.candidates[self.groups][document], self.lists.lengths[list]
        ranks, points = length + 1, (candidates - length + 1) / 2
        found = self.list + (start - first)[self.document]
        ranks[found] = self.ranks
        points[found] = candidates[found] - self.ranks + 1
        return replace(self, document=document, list=list, ranks=ranks, scores=points).sort_rows()

    def sort_rows(self) -> "Hits":
        """Sort the rows into the order that the class promises."""
        order = np.lexsort((self.scores, self.weights, self.ranks, self.document))
        return replace(
            self,
            document=self.document[order],
            list=self.list[order],
            ranks=self.ranks[order],
            scores=self.scores[order],
        )


def gather_hits(rankings: Sequence[Ranked], groups: Groups, norm: Callable[[Hits], Hits] = lambda hits: hits) -> Hits:
    """Gather the hits of each group, normalised by `norm`. `ValueError` for a weight that is negative or not finite."""
    lists = lay_out(rankings, groups)
    lengths = lists.lengths
    list = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(list)) - offsets_of(lengths)[list]
    rows = lists.starts[list] + place
    scores = np.concatenate([r.scores for r in rankings] or [np.empty(0)]).astype(np.float64)
    order = np.lexsort((lists.docs[rows], lists.group_of[list]))
    docs, group_of = lists.docs[rows][order], lists.group_of[list][order]
    new = np.ones(len(docs), dtype=bool)
    new[1:] = (docs[1:] != docs[:-1]) | (group_of[1:] != group_of[:-1])
    hits = Hits(
        docs=docs[new],
        groups=group_of[new],
        document=np.cumsum(new) - 1,
        list=list[order],
        ranks=place[order] + 1,
        scores=scores[rows][order],
        lists=lists,
    )
    return norm(hits).sort_rows()


def rank_hits(hits: Hits, scores: Floats, ids: Sequence[str], depth: int) -> Rankings:
    """Rank the documents of each group by their scores (float64[documents]), and keep the first `depth`.

    `ids` are the query ids of the groups' rankings. Equal scores go by document id.
    """
    order = np.lexsort((-scores, hits.groups))
    first = offsets_of(hits.candidates)[:-1]
    order = order[np.arange(len(order)) - first[hits.groups] < depth]
    return Rankings(tuple(ids), offsets_of(np.minimum(hits.candidates, depth)), hits.docs[order], scores[order])
