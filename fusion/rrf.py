"""Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009), in the two stages of Keystone-Docs RAG.

Stage 1 (section 2.3.1) fuses the systems of one query. Stage 2 (section 2.3.2) fuses the queries of one narrative,
which `group_queries_by_topic` groups.
Both sum weight / (k + rank) over rankings. Ranks begin at 1, and an absent document adds 0.
`fuse_reciprocal_ranks` does the same with lists of other things, such as the evidence of several readers.
"""

import sys
from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np

from keystone.fusion.lists import Groups, Ranked, gather_hits, lay_out, rank_hits
from keystone.fusion.methods import RRF_K, rrf
from keystone.retrieval.types import Rankings, offsets_of

T = TypeVar("T", bound=Hashable)

FEW_ROWS = 100_000
"""Up to this many rows, NumPy fuses them sooner than a process loads Numba."""


def fuse_groups(rankings: Sequence[Ranked], groups: Groups, k: float, depth: int) -> Rankings:
    """Fuse the lists of each group of `rankings` by RRF, and keep the first `depth` documents.

    Scores are float64; equal ones go by document id. The result is the same to the last bit for any order of a
    group's lists. `ValueError` for a weight that is negative or not finite.
    """
    if not _is_kernel_due(sum(len(r.docs) for r in rankings)):
        hits = gather_hits(rankings, groups)
        return rank_hits(hits, rrf(hits, k), groups.ids, depth)
    from keystone.fusion.loops import fuse_lists

    lists = lay_out(rankings, groups)
    total = int(lists.lengths.sum())
    out_docs, out_scores = np.empty(total, np.int32), np.empty(total, np.float64)
    counts = np.zeros(len(groups.members), dtype=np.int64)
    written = fuse_lists(
        lists.docs,
        lists.starts,
        lists.ends,
        lists.weights,
        lists.groups,
        float(k),
        depth,
        out_docs,
        out_scores,
        counts,
    )
    return Rankings(tuple(groups.ids), offsets_of(counts), out_docs[:written], out_scores[:written])


def _is_kernel_due(rows: int) -> bool:
    """Return whether compiled code is worth its loading: for many rows, or if the process has loaded Numba anyway."""
    return rows > FEW_ROWS or "numba" in sys.modules


def fuse_systems(
    systems: Sequence[Rankings], k: float = RRF_K, depth: int = 1000, weights: Sequence[float] | None = None
) -> Rankings:
    """Stage 1: fuse the rankings of several systems into one hybrid ranking for each query.

    All systems have the same queries in the same order (Keystone-Docs RAG, section 2.3.1). `weights` stand beside
    `systems` (None: all 1).
    """
    ids = systems[0].query_ids
    members = [[(system, query) for system in range(len(systems))] for query in range(len(ids))]
    return fuse_groups(systems, Groups(ids, members, None if weights is None else [weights] * len(ids)), k, depth)


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
