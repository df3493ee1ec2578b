"""Fusion of rankings: by reciprocal ranks, by scores, or by any method in the table of methods.

Keystone-Docs RAG fuses by reciprocal ranks (Cormack, Clarke and Buettcher, SIGIR 2009) in two stages. Stage 1 (section
2.3.1) fuses the systems of one query. Stage 2 (sections 2.3.2 and 2.4) fuses the queries of one narrative, which
`group_queries_by_topic` groups. Both sum weight / (k + rank) over rankings. Ranks begin at 1, and an absent document
adds 0. `runs/pipeline/ranking/fuse_narratives.py` performs both by the settings of a run.
"""

import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from keystone.fusion.lists import Groups, Ranked, RankedLists, gather_hits, lay_out, rank_hits
from keystone.fusion.methods import METHODS, NORMS, RRF_K, find_impossible_setting, rrf
from keystone.retrieval.types import Rankings, join_rankings, offsets_of

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
        lists.docs, lists.starts, lists.ends, lists.weights, lists.groups, float(k), depth, out_docs, out_scores, counts
    )
    return Rankings(tuple(groups.ids), offsets_of(counts), out_docs[:written], out_scores[:written])


def _is_kernel_due(rows: int) -> bool:
    """Return whether compiled code is worth its loading: for many rows, or if the process has loaded Numba anyway."""
    return rows > FEW_ROWS or "numba" in sys.modules


def fuse_systems(
    systems: Sequence[Rankings], k: float = RRF_K, depth: int = 1000, weights: Sequence[float] | None = None
) -> Rankings:
    """Stage 1: fuse the rankings of several systems into one hybrid ranking for each query.

    All systems have the same queries in the same order (Keystone-Docs RAG, section 2.3.1). `weights` has one weight for
    each of `systems` (None: all 1).
    """
    ids = systems[0].query_ids
    members = [[(system, query) for system in range(len(systems))] for query in range(len(ids))]
    return fuse_groups(systems, Groups(ids, members, None if weights is None else [weights] * len(ids)), k, depth)


def interleave(lists: Sequence[Sequence[T]], most: int | None = None) -> list[T]:
    """Interleave lists rank by rank, each item once; if `most` is given, only the first `most` stay (DiscoRAG: K)."""
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


DEFAULT_NORM = "min-max"
"""The normalisation for a method that adds scores, if the caller names none. ranx has the same default."""
QUERIES_AT_ONCE = 500
"""Scores of this many queries are added at once, so that memory does not grow with the number of queries."""


@dataclass(frozen=True, slots=True)
class FusionSettings:
    """How rankings are fused."""

    method: str = "rrf"
    """A key of `keystone.fusion.methods.METHODS`."""
    depth: int = 1000
    """The number of documents that each fused ranking keeps."""
    norm: str | None = None
    """A key of `keystone.fusion.methods.NORMS`. None: `min-max` for methods that look at scores."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """The method's parameters by name. Those left out have the method's defaults."""


def fuse(rankings: Sequence[Ranked], groups: Groups, settings: FusionSettings | None = None) -> Rankings:
    """Fuse the lists of each group of `rankings` into one ranking. Scores are float64; equal ones go by document id.

    The result is the same to the last bit for any order of a group's lists. `ValueError` names a setting that
    `find_impossible_setting` finds, or a weight that is negative or not finite.
    """
    settings = settings or FusionSettings()
    uneven = len({weight for own in groups.weights or [] for weight in own if weight}) > 1
    if found := find_impossible_setting(settings.method, settings.norm, settings.parameters, uneven):
        raise ValueError(": ".join(found))
    method = METHODS[settings.method]
    if settings.method == "rrf":
        return fuse_groups(rankings, groups, settings.parameters.get("k", RRF_K), settings.depth)
    norm = settings.norm or (DEFAULT_NORM if method.of_scores else "none")
    hits = gather_hits(rankings, groups, NORMS[norm])
    return rank_hits(hits, method.score(hits, **settings.parameters), groups.ids, settings.depth)


def combine_systems(
    systems: Sequence[Rankings],
    weights: Sequence[float],
    lowest: Sequence[float],
    depths: Sequence[int],
    depth: int,
) -> Rankings:
    """Fuse the systems of each query by their scores: the sum of weight times (s - absent) / (max - lowest).

    This is the convex combination TM2C2 of Bruch, Gai and Ingber (TOIS 2023, section 4), up to a constant for each
    query. `lowest` is the score below which a system cannot score, such as 0 for BM25. The value max is the highest
    score of the list. A document that a list lacks has the score `absent`, and so adds 0. If the list is as long as its
    system's depth, it was cut there, and `absent` is its last score. Otherwise `absent` is `lowest`.

    All systems have the same queries in the same order; `weights`, `lowest` and `depths` have one value for each of
    `systems`. The result keeps the first `depth` documents. Scores are float64.
    """
    ids = systems[0].query_ids
    settings = FusionSettings("sum", depth, "none")
    blocks = []
    for first in range(0, len(ids), QUERIES_AT_ONCE):
        places = range(first, min(first + QUERIES_AT_ONCE, len(ids)))
        members = [[(system, query) for system in range(len(systems))] for query in range(len(places))]
        lists = [
            _scale_scores(system.select(places), weight, least, own)
            for system, weight, least, own in zip(systems, weights, lowest, depths, strict=True)
        ]
        blocks.append(fuse(lists, Groups([ids[place] for place in places], members), settings))
    return join_rankings([systems[0].select([]), *blocks])


def _scale_scores(rankings: Rankings, weight: float, lowest: float, depth: int) -> RankedLists:
    """Turn each score into its share of the sum of `combine_systems`. A list whose scores are all `lowest` adds 0."""
    counts = np.diff(rankings.offsets)
    held = counts[counts > 0]
    scores = rankings.scores.astype(np.float64)
    ends = np.cumsum(held)
    high, last = scores[ends - held], scores[ends - 1]
    least = np.minimum(last, lowest)
    absent = np.where(held >= depth, last, least)
    factors = np.divide(weight, high - least, out=np.zeros(len(held)), where=high > least)
    shares = np.repeat(factors, held) * (scores - np.repeat(absent, held))
    return RankedLists(rankings.offsets, rankings.docs, shares)
