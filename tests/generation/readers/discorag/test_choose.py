"""Choices without a model: entries, neighbours, the closest leaves, and leaves by the closeness of all nodes."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.readers.discorag.read import (
    LEAVES_OF_INNER_NODE,
    PICKS,
    choose_entries,
    find_nearest_leaves,
    pick_by_nodes,
    pick_with_neighbours,
)
from keystone.generation.readers.discorag.tools import Discourse, rank_leaves
from keystone.generation.readers.settings import DiscoRagSettings
from keystone.indexing.structures.tree import leaves
from tests.support.structures.discourse_trees import Sketch, draw_chain, make_discourse, number_nodes

ASKED = np.array([1, 0, 0, 0], np.float32)
SKETCHES = st.recursive(st.none(), lambda parts: st.tuples(st.just("joint"), parts, parts), max_leaves=12)
STEPS = st.integers(-8, 8).map(lambda number: number / 8)


def settle(**values: Any) -> DiscoRagSettings:
    return DiscoRagSettings(name="discorag", **values)


def grow(sketch: Sketch, cosines: list[float]) -> Discourse:
    ids = [leaf.id for leaf in leaves(number_nodes(sketch))]
    return make_discourse(sketch, {}, {id: [cosine, 0.5, 0, 0] for id, cosine in zip(ids, cosines, strict=False)})


FORESTS = st.lists(st.builds(grow, SKETCHES, st.lists(STEPS, min_size=12, max_size=12)), max_size=4)


@given(FORESTS, st.integers(1, 9), st.integers(1, 4))
def test_entries_are_the_closest_leaves_within_the_share_of_a_document(
    forest: list[Discourse], entries: int, most: int
) -> None:
    found = choose_entries(forest, ASKED, settle(entries=entries, entries_per_document=most))
    share = max(most, -(-entries // max(len(forest), 1)))
    counts = Counter(place for place, _ in found)
    assert all(count <= share for count in counts.values())
    ranked = rank_leaves(forest, ASKED)
    assert found == [leaf for leaf in ranked if leaf in found]
    allowed = sum(min(share, len(one.leaves)) for one in forest)
    assert len(found) == min(entries, allowed)
    passed = ranked[: ranked.index(found[-1])] if found else []
    assert all(leaf in found or counts[leaf[0]] == share for leaf in passed)


def test_one_document_has_all_entries() -> None:
    assert len(choose_entries([grow(draw_chain(20), [])], ASKED, settle())) == 8


@pytest.mark.slow
@pytest.mark.parametrize("method", PICKS)
@given(forest=FORESTS, kept=st.integers(1, 20))
def test_every_method_picks_leaves_of_the_forest(method: str, forest: list[Discourse], kept: int) -> None:
    picks = PICKS[method](forest, ASKED, settle(kept=kept))
    every = set(rank_leaves(forest, ASKED))
    found = [(one.place, id) for one in picks for id in one.leaves]
    assert set(found) <= every
    if method != "expansion":
        assert len(set(found)) == len(found) == min(kept, len(every))
    assert picks == PICKS[method](forest, ASKED, settle(kept=kept))


def test_expansion_adds_the_nearest_neighbours_first() -> None:
    one = grow(draw_chain(6), [0.9, 0, 0, 0.8, 0, 0])
    picks = pick_with_neighbours([one], ASKED, settle(entries=2, neighbours=2))
    assert [pick.leaves for pick in picks] == [(1, 3, 5), (7, 5, 9, 3, 10)]


def test_a_close_inner_node_brings_in_its_best_leaves_in_text_order() -> None:
    """The leaves below node 2 point to both sides of the question, and their mean at it; leaf 1 is closer than each."""
    ids = [3, 5, 7, 9, 11, 13, 15, 16]
    vectors = {id: [0.7 + id / 1000, 0, 0.7 if place % 2 else -0.7, 0] for place, id in enumerate(ids)}
    one = make_discourse(("joint", None, draw_chain(8)), {}, {1: [0.75, 0.66, 0, 0], **vectors})
    picks = pick_by_nodes([one], ASKED, settle(kept=7))
    assert [pick.leaves for pick in picks[:LEAVES_OF_INNER_NODE]] == [(9,), (11,), (13,), (15,), (16,)]
    assert {pick.node for pick in picks[:LEAVES_OF_INNER_NODE]} == {2}
    assert len(picks) == 7


def test_the_nearest_leaf_of_an_inner_sibling_is_the_one_beside_the_entry() -> None:
    one = grow(("joint", draw_chain(3), ("joint", None, draw_chain(3))), [])
    assert find_nearest_leaves(one, 7, 2) == (7, 9, 5)
    assert find_nearest_leaves(one, 2, 2) == (2, 4, 7)
    assert find_nearest_leaves(grow(None, []), 0, 2) == (0,)
