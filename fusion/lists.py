"""The lists to fuse, laid out so that their order in the arguments cannot change a result.

A list is the ranking of one query by one system. A group holds the lists that become one ranking.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from keystone.retrieval.types import offsets_of

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


class Ranked(Protocol):
    """Lists of documents in the order of their ranks, as `Rankings` holds them; fusion asks for no other order.

    List i owns `docs[offsets[i]:offsets[i + 1]]` and the scores beside them.
    """

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The start of each list, then the end of the last one: int64[lists + 1]."""

    @property
    def docs(self) -> NDArray[np.int32]:
        """The documents of all lists: int32[hits]."""

    @property
    def scores(self) -> NDArray[np.floating[Any]]:
        """The scores of all lists: float[hits]."""

    def __len__(self) -> int:
        """Return the number of lists."""


@dataclass(frozen=True, slots=True)
class RankedLists:
    """Lists whose ranks another tool has decided: ties may stand in any order, and scores may ascend (distances)."""

    offsets: NDArray[np.int64]
    docs: NDArray[np.int32]
    scores: NDArray[np.floating[Any]]

    def __len__(self) -> int:
        return len(self.offsets) - 1


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
    """Lay out the lists of each group by weight, without the lists of weight 0.

    `ValueError` for a weight that is negative or not finite.
    """
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
