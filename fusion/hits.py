"""What the fusion methods see: which list found which document, at which rank, with which score."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusion.lists import Lists, Members, Ranked, lay_out
from retrieval.types import offsets_of

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hits:
    """A row for each (document, list), ordered by document, rank, weight and score, whatever the order of the lists.

    So a sum over the rows of a document is the same to the last bit for any order of the lists.
    """

    docs: NDArray[np.int32]
    """The documents found, ascending in each group: int32[documents]."""
    groups: Integers
    """The group of each document: int64[documents]."""
    document: Integers
    """Where the document of each row stands in `docs`: int64[rows]."""
    list: Integers
    """The list of each row: int64[rows]."""
    ranks: Integers
    """From 1: int64[rows]."""
    scores: Floats
    """As the normalisation left them: float64[rows]."""
    lists: Lists

    @property
    def weights(self) -> Floats:
        """The weight of each row's list: float64[rows]."""
        return self.lists.weights[self.list]

    @property
    def counts(self) -> Integers:
        """How many lists have each document: int64[documents]."""
        return np.bincount(self.document, minlength=len(self.docs))

    @property
    def candidates(self) -> Integers:
        """How many documents each group has: int64[groups]."""
        return np.bincount(self.groups, minlength=len(self.lists.groups) - 1)

    def total(self, terms: Floats) -> Floats:
        """The sum of the terms of each document's rows, added row after row: float64[documents]."""
        return np.bincount(self.document, terms, minlength=len(self.docs)).astype(np.float64, copy=False)

    def middle(self, share: float) -> Floats:
        """The score at `share` of the way from a document's lowest to its highest, or the mean of the two around."""
        scores = self.scores[np.lexsort((self.scores, self.document))]
        first, steps = offsets_of(self.counts)[:-1], share * (self.counts - 1)
        below, above = np.floor(steps).astype(np.int64), np.ceil(steps).astype(np.int64)
        middle: Floats = (scores[first + below] + scores[first + above]) / 2
        return middle

    def with_absent(self) -> "Hits":
        """A row for every document and list of its group, scored by Borda's points.

        Of c documents in the group a list of n gives c to its first, c - 1 to its second and so on; the documents
        that it lacks share what is left, (c - n + 1) / 2 each, and stand at rank n + 1.
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
        return replace(self, document=document, list=list, ranks=ranks, scores=points).in_order()

    def in_order(self) -> "Hits":
        """The same rows in the order that the class promises."""
        order = np.lexsort((self.scores, self.weights, self.ranks, self.document))
        return replace(
            self,
            document=self.document[order],
            list=self.list[order],
            ranks=self.ranks[order],
            scores=self.scores[order],
        )


def gather(
    rankings: Sequence[Ranked],
    members: Members,
    weights: Sequence[Sequence[float]] | None = None,
    norm: Callable[[Hits], Hits] = lambda hits: hits,
) -> Hits:
    """The hits of the members of each group, their scores normalised; `ValueError` as from `lay_out`."""
    lists = lay_out(rankings, members, weights)
    lengths = lists.lengths
    list = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(list)) - offsets_of(lengths)[list]
    rows = lists.starts[list] + place
    scores = np.concatenate([r.scores for r in rankings] or [np.empty(0)]).astype(np.float64)
    order = np.lexsort((lists.docs[rows], lists.group_of[list]))
    docs, groups = lists.docs[rows][order], lists.group_of[list][order]
    new = np.ones(len(docs), dtype=bool)
    new[1:] = (docs[1:] != docs[:-1]) | (groups[1:] != groups[:-1])
    hits = Hits(
        docs=docs[new],
        groups=groups[new],
        document=np.cumsum(new) - 1,
        list=list[order],
        ranks=place[order] + 1,
        scores=scores[rows][order],
        lists=lists,
    )
    return norm(hits).in_order()
