"""The table that fusion methods compute on: which list found which document, at which rank, with which score."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.lists import Groups, Lists, Ranked, lay_out
from keystone.retrieval.types import Rankings, offsets_of

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

        In a group of c documents, each list gives c points to its first document, c - 1 to its second and so on.
        The documents that a list of n lacks share the remaining points: each gets (c - n + 1) / 2. They stand at rank
        n + 1 (Aslam and Montague, SIGIR 2001).
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
    """Gather the hits of each group's lists and normalise their scores by `norm`.

    `ValueError` for a weight that is negative or not finite.
    """
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
