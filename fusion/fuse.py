"""Fusion by any method of the table: rankings in, one ranking a group out."""

from collections.abc import Mapping, Sequence

import numpy as np

from fusion.hits import gather
from fusion.lists import Members, Ranked
from fusion.methods import METHODS, impossible
from fusion.norms import NORMS
from fusion.rrf import K, fuse_groups
from retrieval.types import Rankings, offsets_of

NORM = "min-max"
"""The normalisation where a method needs one and none is named, as in ranx."""


def fuse(
    rankings: Sequence[Ranked],
    members: Members,
    ids: Sequence[str],
    method: str = "rrf",
    depth: int = 1000,
    weights: Sequence[Sequence[float]] | None = None,
    norm: str | None = None,
    parameters: Mapping[str, float] | None = None,
) -> Rankings:
    """Fuse, for each new id, its members (which of `rankings`, which query of it); keep the top `depth`.

    `weights` are beside `members`, 1 where not given; a list of weight 0 is left out. Scores are float64, ties are
    broken by document id, and the result is the same to the last bit for any order of the members. `ValueError` for
    what `impossible` names, and for a weight that is negative or not finite.
    """
    parameters = parameters or {}
    uneven = len({w for own in weights or [] for w in own if w}) > 1
    if found := impossible(method, norm, parameters, uneven):
        raise ValueError(": ".join(found))
    if method == "rrf":
        return fuse_groups(rankings, members, ids, parameters.get("k", K), depth, weights)
    hits = gather(rankings, members, weights, NORMS[norm or (NORM if METHODS[method].of_scores else "none")])
    scores = METHODS[method].score(hits, **parameters)
    order = np.lexsort((-scores, hits.groups))
    first = offsets_of(hits.candidates)[:-1]
    order = order[np.arange(len(order)) - first[hits.groups] < depth]
    counts = np.minimum(hits.candidates, depth)
    return Rankings(tuple(ids), offsets_of(counts), hits.docs[order], scores[order])
