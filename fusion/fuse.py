"""Fusion of rankings by any method in the table of methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fusion.hits import gather_hits
from fusion.lists import Groups, Ranked
from fusion.methods import METHODS, find_impossible_setting
from fusion.norms import NORMS
from fusion.rrf import RRF_K, fuse_groups
from retrieval.types import Rankings, offsets_of

DEFAULT_NORM = "min-max"
"""The normalisation for a method that adds scores, if the caller names none. ranx has the same default."""


@dataclass(frozen=True, slots=True)
class FusionSettings:
    """How rankings are fused."""

    method: str = "rrf"
    """A key of `fusion.methods.METHODS`."""
    depth: int = 1000
    """The number of documents that each fused ranking keeps."""
    norm: str | None = None
    """A key of `fusion.norms.NORMS`. None: `min-max` for methods that look at scores."""
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
    scores = method.score(hits, **settings.parameters)
    order = np.lexsort((-scores, hits.groups))
    first = offsets_of(hits.candidates)[:-1]
    order = order[np.arange(len(order)) - first[hits.groups] < settings.depth]
    counts = np.minimum(hits.candidates, settings.depth)
    return Rankings(tuple(groups.ids), offsets_of(counts), hits.docs[order], scores[order])
