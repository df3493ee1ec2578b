"""The first stage by scores: a convex combination of each query's lists, in blocks of queries."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.fusion import fuse
from keystone.fusion.fuse import combine_systems
from keystone.retrieval.types import Rankings, ranked

Lists = list[dict[int, float]]

LISTS = st.lists(
    st.dictionaries(st.integers(0, 20), st.integers(-50, 50).map(lambda tenths: tenths / 10), max_size=12),
    min_size=3,
    max_size=3,
)


def make_rankings(lists: Lists, depth: int = 100) -> Rankings:
    return ranked(
        [str(i) for i in range(len(lists))],
        [np.array(list(hits), np.int32) for hits in lists],
        [np.array(list(hits.values()), np.float64) for hits in lists],
        depth,
    )


LOWEST = (-4.0, -6.0)
"""The lowest possible scores of the two systems. Some lists of the first one have lower ones nevertheless."""


def add_scaled_scores(systems: list[Rankings], i: int, weights: tuple[float, ...], depth: int) -> dict[int, float]:
    total: dict[int, float] = defaultdict(float)
    for system, weight, lowest in zip(systems, weights, LOWEST, strict=True):
        scores = system.scores_of(i).tolist()
        least = min([lowest, *scores])
        absent = scores[-1] if len(scores) == depth else least
        for doc, score in zip(system.of(i).tolist(), scores, strict=True):
            total[doc] += weight * ((score - absent) / (scores[0] - least) if scores[0] > least else 0)
    return total


@given(LISTS, LISTS, st.sampled_from([(0.3, 0.7), (0.5, 0.25)]), st.integers(1, 4), st.sampled_from([1, 4, 100]))
def test_scores_are_those_of_the_formula_for_any_number_of_queries_at_once(
    sparse: Lists, dense: Lists, weights: tuple[float, float], at_once: int, depth: int
) -> None:
    systems = [make_rankings(sparse, depth), make_rankings(dense, depth)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fuse, "QUERIES_AT_ONCE", at_once)
        fused = combine_systems(systems, weights, LOWEST, [depth] * 2, depth)
    for i in range(len(fused)):
        expected = add_scaled_scores(systems, i, weights, depth)
        found = dict(zip(fused.of(i).tolist(), fused.scores_of(i).tolist(), strict=True))
        assert found == pytest.approx({doc: expected[doc] for doc in found})
        assert list(found.values()) == pytest.approx(sorted(expected.values(), reverse=True)[:depth])


def test_a_document_that_a_cut_list_lacks_counts_like_the_last_one_of_the_list() -> None:
    """Of 100 million documents, the first thousand by embeddings have nearly equal scores."""
    dense = make_rankings([{1: 0.9, 2: 0.89, 3: 0.88}])
    systems = [make_rankings([{9: 12.0}]), dense]
    assert combine_systems(systems, (0.15, 0.85), (0, -1), (3, 3), 3).docs.tolist() == [9, 1, 2]
    assert combine_systems(systems, (0.15, 0.85), (0, -1), (4, 4), 4).docs.tolist() == [1, 2, 3, 9]
    cut = combine_systems(systems, (0.15, 0.85), (0, -1), (4, 3), 4)
    assert cut.docs.tolist() == [9, 1, 2, 3], "a system has a depth of its own"


def test_scores_that_float64_cannot_tell_apart_after_scaling_tie() -> None:
    dense = make_rankings([{9: 2e-20, 1: 1e-20}])
    assert combine_systems([dense], (1.0,), (-1,), (100,), 100).docs.tolist() == [1, 9]


def test_each_ranking_keeps_the_first_documents_and_a_run_without_queries_is_empty() -> None:
    systems = [make_rankings([{1: 3.0, 2: 2.0, 3: 1.0}]), make_rankings([{3: 0.9, 1: 0.5}])]
    assert combine_systems(systems, (0.3, 0.7), (0, -1), (2, 2), 2).docs.tolist() == [1, 3]
    assert len(combine_systems([make_rankings([])] * 2, (0.3, 0.7), (0, -1), (2, 2), 2)) == 0
