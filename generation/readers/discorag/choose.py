"""The choices of leaves that need no model: entries, the paper's baselines, and the reader by rules."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keystone.generation.readers.discorag.forest import Discourse, Leaf, Vector, rank_leaves
from keystone.generation.readers.settings import DiscoRagSettings
from keystone.indexing.structures.discourse import relations_from
from keystone.indexing.structures.tree import leaves, position

LEAVES_OF_INNER_NODE = 5
"""The most leaves that an inner node brings in (DISRetrieval)."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Leaves of one tree, by id and best first, that one node brings in, and the reason.

    `place` is the place of the tree in its forest.
    """

    place: int
    node: int
    leaves: tuple[int, ...]
    why: str


def choose_entries(forest: Sequence[Discourse], vector: Vector, settings: DiscoRagSettings) -> list[Leaf]:
    """Choose the leaves closest to the question, at most `entries_per_document` in one document.

    If there are too few documents for `entries` leaves, each has an equal share of them instead.
    """
    share = -(-settings.entries // max(len(forest), 1))
    most = max(settings.entries_per_document, share)
    found: list[Leaf] = []
    counts = Counter[int]()
    for place, id in rank_leaves(forest, vector):
        if counts[place] < most and len(found) < settings.entries:
            counts[place] += 1
            found.append((place, id))
    return found


def pick_closest(forest: Sequence[Discourse], vector: Vector, settings: DiscoRagSettings) -> list[Pick]:
    """Pick the leaves closest to the question: Vanilla RAG (paper, section 5.1.1)."""
    ranked = rank_leaves(forest, vector)[: settings.kept]
    return [Pick(place, id, (id,), "closest to the question") for place, id in ranked]


def pick_with_neighbours(forest: Sequence[Discourse], vector: Vector, settings: DiscoRagSettings) -> list[Pick]:
    """Pick each entry leaf and its neighbours in the text, the nearest first: ExpansionRAG (paper, section 5.1.1)."""
    found = []
    for place, id in choose_entries(forest, vector, settings):
        ids = [leaf.id for leaf in forest[place].leaves]
        at = ids.index(id)
        around = [at, *(to for step in range(1, settings.neighbours + 1) for to in (at - step, at + step))]
        near = tuple(ids[to] for to in around if 0 <= to < len(ids))
        found.append(Pick(place, id, near, f"beside entry leaf {id}"))
    return found


def pick_by_nodes(forest: Sequence[Discourse], vector: Vector, settings: DiscoRagSettings) -> list[Pick]:
    """Pick leaves by the closeness of all nodes to the question (`rest_topk` of DISRetrieval). It asks no model.

    A leaf brings in itself. An inner node brings in its closest leaves that are not yet taken, in text order. An inner
    node is as close as the mean of its leaves' vectors.
    """
    bounds = [_bound_leaves(discourse) for discourse in forest]
    scores = [_rate(discourse, bound, vector) for discourse, bound in zip(forest, bounds, strict=True)]
    ranked = sorted((-score, place, at) for place, rated in enumerate(scores) for at, score in enumerate(rated))
    found: list[Pick] = []
    taken: set[Leaf] = set()
    for _, place, at in ranked:
        first, last = bounds[place][:, at].tolist()
        cosines = forest[place].vectors[first:last] @ vector
        ids = [leaf.id for leaf in forest[place].leaves[first:last]]
        free = [to for to in np.argsort(-cosines, kind="stable").tolist() if (place, ids[to]) not in taken]
        node = forest[place].tree.ids[at]
        for to in sorted(free[:LEAVES_OF_INNER_NODE]):
            taken.add((place, ids[to]))
            found.append(Pick(place, node, (ids[to],), f"brought in by node {node}"))
        if len(found) >= settings.kept:
            break
    return found[: settings.kept]


def find_nearest_leaves(discourse: Discourse, entry: int, most: int) -> tuple[int, ...]:
    """Find an entry leaf and its nearest siblings; an inner sibling is its leaf that is nearest in the text."""
    found = [entry]
    for sibling in relations_from(discourse.tree, entry, most):
        below = leaves(discourse.tree, sibling.id)
        found.append(below[0 if sibling.id > entry else -1].id)
    return tuple(found)


def _bound_leaves(discourse: Discourse) -> NDArray[np.int64]:
    """Find the places of the leaves below each node: int64[2, nodes], the first place and the one after the last."""
    positions = [position(discourse.tree, leaf.id) for leaf in discourse.leaves]
    return np.searchsorted(positions, [range(len(discourse.tree)), discourse.tree.ends])


def _rate(discourse: Discourse, bounds: NDArray[np.int64], vector: Vector) -> list[float]:
    """Rate the nodes of a tree by the cosine to a vector, in their order."""
    sums = np.cumsum(np.vstack([np.zeros_like(vector), discourse.vectors]), axis=0, dtype=np.float64)
    means = sums[bounds[1]] - sums[bounds[0]]
    lengths = np.maximum(np.linalg.norm(means, axis=1), np.finfo(float).tiny)
    scores: list[float] = (means @ vector.astype(np.float64) / lengths).tolist()
    return scores


PICKS: Mapping[str, Callable[[Sequence[Discourse], Vector, DiscoRagSettings], list[Pick]]] = {
    "expansion": pick_with_neighbours,
    "vanilla": pick_closest,
    "rest_topk": pick_by_nodes,
}
"""The ways to pick leaves without a model, by name."""
