"""Fusion of rankings by any method in the table of methods, and so of a topic's queries (paper, section 2.4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from keystone.fusion.lists import Groups, Ranked, RankedLists, gather_hits, rank_hits
from keystone.fusion.methods import METHODS, NORMS, RRF_K, find_impossible_setting
from keystone.fusion.rrf import fuse_groups
from keystone.retrieval.types import Rankings, offsets_of

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
    """The method's parameters by name. The method's own defaults stand for the others."""


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
    systems: Sequence[Rankings], weights: Sequence[float], lowest: Sequence[float], depth: int
) -> Rankings:
    """Fuse the systems of each query by their scores: the sum of weight times (s - absent) / (max - lowest).

    This is the convex combination TM2C2 of Bruch, Gai and Ingber (TOIS 2023, section 4), up to a constant for each
    query. `lowest` is the score below which a system cannot score, such as 0 for BM25. The value max is the highest
    score of the list. A document that a list lacks has the score `absent`, and so adds 0. That is the last score of a
    list of `depth` documents, which is cut there, and else `lowest`.

    All systems have the same queries in the same order; `weights` and `lowest` stand beside `systems`. Scores are
    float64.
    """
    ids = systems[0].query_ids
    settings = FusionSettings("sum", depth, "none")
    blocks = []
    for first in range(0, len(ids), QUERIES_AT_ONCE):
        places = range(first, min(first + QUERIES_AT_ONCE, len(ids)))
        members = [[(system, query) for system in range(len(systems))] for query in range(len(places))]
        lists = [
            _scale_scores(system.select(places), weight, least, depth)
            for system, weight, least in zip(systems, weights, lowest, strict=True)
        ]
        blocks.append(fuse(lists, Groups([ids[place] for place in places], members), settings))
    return Rankings(
        ids,
        offsets_of(np.concatenate([np.empty(0, np.int64), *(np.diff(block.offsets) for block in blocks)])),
        np.concatenate([systems[0].docs[:0], *(block.docs for block in blocks)]),
        np.concatenate([np.empty(0), *(block.scores for block in blocks)]),
    )


def _scale_scores(rankings: Rankings, weight: float, lowest: float, depth: int) -> RankedLists:
    """Turn each score into the share of `combine_systems`. A list whose scores are all `lowest` adds 0."""
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
