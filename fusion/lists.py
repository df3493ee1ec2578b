"""The lists that are fused, laid out so that no order in which they are named changes a result."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from retrieval.types import offsets_of

Members = Sequence[Sequence[tuple[int, int]]]
"""For each group the lists in it: (which of the rankings, which query of it)."""


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

    `docs` are those of all rankings, one after another; the lists of a group are in the order of their weights.
    """

    docs: NDArray[np.int32]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    weights: NDArray[np.float64]
    groups: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many documents each list has: int64[lists]."""
        return self.ends - self.starts

    @property
    def group_of(self) -> NDArray[np.int64]:
        """The group of each list: int64[lists]."""
        return np.repeat(np.arange(len(self.groups) - 1), np.diff(self.groups))


def lay_out(rankings: Sequence[Ranked], members: Members, weights: Sequence[Sequence[float]] | None = None) -> Lists:
    """The members of each group with their weights, 1 where none are given; a list of weight 0 is left out.

    `ValueError` for a weight that is negative or not finite.
    """
    sizes = [len(own) for own in members]
    named = np.array([member for own in members for member in own], dtype=np.int64).reshape(-1, 2)
    heavy = np.ones(len(named)) if weights is None else np.array([w for own in weights for w in own], dtype=np.float64)
    if not np.all(np.isfinite(heavy) & (heavy >= 0)):
        raise ValueError("a weight is negative or not finite")
    queries = offsets_of([len(r) for r in rankings])[named[:, 0]] + named[:, 1]
    shifts = offsets_of([len(r.docs) for r in rankings])
    bounds = [(r.offsets[:-1] + shift, r.offsets[1:] + shift) for r, shift in zip(rankings, shifts, strict=False)]
    starts = np.concatenate([own for own, _ in bounds] or [shifts[:0]])[queries]
    ends = np.concatenate([own for _, own in bounds] or [shifts[:0]])[queries]
    group = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((heavy, group))
    order = order[heavy[order] > 0]
    return Lists(
        np.concatenate([r.docs for r in rankings] or [np.empty(0, np.int32)]),
        starts[order],
        ends[order],
        heavy[order],
        offsets_of(np.bincount(group[order], minlength=len(sizes))),
    )


def of_topics(
    topic_of: Sequence[str], topics: Sequence[str], weights: Sequence[float] | None = None
) -> tuple[list[list[tuple[int, int]]], list[list[float]]]:
    """The queries of each topic as members of one ranking, and their weights; `topic_of[i]` is the topic of query i."""
    own: dict[str, list[int]] = {topic: [] for topic in topics}
    for query, topic in enumerate(topic_of):
        own[topic].append(query)
    heavy = weights if weights is not None else [1.0] * len(topic_of)
    return [[(0, i) for i in queries] for queries in own.values()], [[heavy[i] for i in q] for q in own.values()]
