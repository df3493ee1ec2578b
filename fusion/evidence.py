"""Fusion of the evidence lists of several readers: round by round, or by reciprocal rank fusion."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

RRF_K = 60
"""The constant of reciprocal rank fusion (Cormack et al. 2009)."""


def interleave(lists: Sequence[Sequence[T]], most: int | None = None) -> list[T]:
    """Interleave lists rank by rank: the first of each list, then the second of each, each item once.

    If `most` is not None, only the first `most` items stay (DiscoRAG: K).
    """
    longest = max(map(len, lists), default=0)
    in_turn = (own[rank] for rank in range(longest) for own in lists if rank < len(own))
    return list(dict.fromkeys(in_turn))[:most]


def fuse_reciprocal_ranks(lists: Sequence[Sequence[T]], k: int = RRF_K) -> list[tuple[T, float]]:
    """Fuse lists by the sum of 1 / (k + rank), ranks from 1; returns items with scores, best first.

    In each list, an item counts at its first place. Ties go to the item that `interleave` has first.
    """
    scores = dict.fromkeys(interleave(lists), 0.0)
    for own in lists:
        for rank, item in enumerate(dict.fromkeys(own), start=1):
            scores[item] += 1 / (k + rank)
    return sorted(scores.items(), key=lambda pair: -pair[1])
