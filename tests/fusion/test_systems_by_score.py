"""The first stage by scores: a convex combination of each query's lists, in blocks of queries."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion import fuse
from fusion.fuse import combine_systems
from retrieval.types import Rankings, ranked

Lists = list[dict[int, float]]

LISTS = st.lists(
    st.dictionaries(st.integers(0, 20), st.integers(-50, 50).map(lambda tenths: tenths / 10), max_size=12),
    min_size=3,
    max_size=3,
)


def make_rankings(lists: Lists) -> Rankings:
    return ranked(
        [str(i) for i in range(len(lists))],
        [np.array(list(hits), np.int32) for hits in lists],
        [np.array(list(hits.values()), np.float64) for hits in lists],
        100,
    )


LOWEST = (-5.0, -6.0)
"""The lowest possible scores of the two systems. The first one reaches its own."""


def add_scaled_scores(lists: Lists, weights: tuple[float, ...]) -> dict[int, float]:
    total: dict[int, float] = defaultdict(float)
    for hits, weight, lowest in zip(lists, weights, LOWEST, strict=True):
        high = max(hits.values(), default=0)
        for doc, score in hits.items() if weight else ():
            total[doc] += weight * ((score - lowest) / (high - lowest) if high > lowest else 0)
    return total


@given(LISTS, LISTS, st.sampled_from([(0.3, 0.7), (0.0, 1.0), (0.5, 0.25)]), st.integers(1, 4))
def test_scores_are_those_of_the_formula_for_any_number_of_queries_at_once(
    sparse: Lists, dense: Lists, weights: tuple[float, float], at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fuse, "QUERIES_AT_ONCE", at_once)
        fused = combine_systems([make_rankings(sparse), make_rankings(dense)], weights, LOWEST, 100)
    for i, lists in enumerate(zip(sparse, dense, strict=True)):
        expected = add_scaled_scores(list(lists), weights)
        found = dict(zip(fused.of(i).tolist(), fused.scores_of(i).tolist(), strict=True))
        assert found == pytest.approx(expected)


def test_each_ranking_keeps_the_first_documents_and_a_run_without_queries_is_empty() -> None:
    systems = [make_rankings([{1: 3.0, 2: 2.0, 3: 1.0}]), make_rankings([{3: 0.9, 1: 0.5}])]
    assert combine_systems(systems, (0.3, 0.7), (0, -1), 2).docs.tolist() == [1, 3]
    assert len(combine_systems([make_rankings([])] * 2, (0.3, 0.7), (0, -1), 2)) == 0
