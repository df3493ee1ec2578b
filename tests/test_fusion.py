"""Fusion: RRF in two stages, the frequency strategy, coverage; each equal to a plain twin."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.coverage import choose
from fusion.frequency import fuse_by_frequency
from fusion.rrf import fuse_groups, fuse_queries, fuse_systems
from fusion.segments import closest
from indexing.embed import on_grid
from retrieval.types import Rankings, offsets_of

Lists = Sequence[Sequence[int]]

LISTS = st.lists(st.lists(st.integers(0, 12), unique=True, max_size=8), min_size=1, max_size=6)


def rankings(lists: Lists) -> Rankings:
    flat = [doc for own in lists for doc in own]
    scores = [1.0 / (rank + 1) for own in lists for rank in range(len(own))]
    names = tuple(str(i) for i in range(len(lists)))
    return Rankings(names, offsets_of([len(own) for own in lists]), np.array(flat, np.int32), np.array(scores))


def plain_rrf(lists: Lists, k: int, depth: int) -> list[int]:
    """The sum as the paper writes it, terms from the top rank down; ties by document."""
    places: dict[int, list[int]] = {}
    for own in lists:
        for rank, doc in enumerate(own, start=1):
            places.setdefault(doc, []).append(rank)
    score = {
        doc: functools.reduce(lambda total, rank: total + 1 / (k + rank), sorted(ranks), 0.0)
        for doc, ranks in places.items()
    }
    return sorted(score, key=lambda doc: (-score[doc], doc))[:depth]


@given(LISTS, st.sampled_from([10, 60]), st.integers(1, 15))
def test_rrf_equals_the_plain_twin(lists: Lists, k: int, depth: int) -> None:
    fused = fuse_queries(rankings(lists), ["t"] * len(lists), ["t"], k, depth)
    assert fused.of(0).tolist() == plain_rrf(lists, k, depth)


@given(LISTS, st.permutations(range(6)))
def test_rrf_gives_the_same_bytes_for_any_order_of_the_lists(lists: Lists, order: list[int]) -> None:
    shuffled = [lists[i] for i in order if i < len(lists)]
    one, other = (fuse_queries(rankings(x), ["t"] * len(lists), ["t"]) for x in (lists, shuffled))
    assert one.docs.tobytes() == other.docs.tobytes()
    assert one.scores.tobytes() == other.scores.tobytes()


@given(LISTS, st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_a_weight_is_so_many_copies_of_a_query(lists: Lists, weights: list[int]) -> None:
    copies = [own for own, weight in zip(lists, weights, strict=False) for _ in range(weight)]
    weighted = fuse_queries(rankings(lists), ["t"] * len(lists), ["t"], weights=weights[: len(lists)])
    assert weighted.of(0).tolist() == plain_rrf(copies, 60, 100)


def test_the_first_stage_pairs_the_systems_of_each_query() -> None:
    bm25, dense = rankings([[1, 2, 3], [4, 5]]), rankings([[2, 1], [5, 6]])
    hybrid = fuse_systems([bm25, dense])
    assert [hybrid.of(0).tolist(), hybrid.of(1).tolist()] == [[1, 2, 3], [5, 4, 6]]
    assert hybrid.scores_of(0)[0] == pytest.approx(1 / 61 + 1 / 62)
    assert hybrid.query_ids == bm25.query_ids


def test_topics_keep_their_order_and_one_without_hits_stays_empty() -> None:
    fused = fuse_queries(rankings([[1], [2], []]), ["b", "a", "c"], ["a", "b", "c"])
    assert [fused.of(i).tolist() for i in range(3)] == [[2], [1], []]
    assert fused.query_ids == ("a", "b", "c")


def test_k_decides_between_one_first_place_and_two_middling_ones() -> None:
    lists = [[7, 1, 2, 3, 9], [4, 5, 6, 8, 9]]
    steep, gradual = (fuse_queries(rankings(lists), ["t", "t"], ["t"], k).of(0)[0] for k in (1, 60))
    assert (steep, gradual) == (4, 9)


def test_groups_may_share_members() -> None:
    lists = rankings([[1, 2], [3]])
    fused = fuse_groups([lists], [[(0, 0)], [(0, 0), (0, 1)]], ["x", "y"], 60, 5)
    assert [fused.of(0).tolist(), fused.of(1).tolist()] == [[1, 2], [1, 3, 2]]


@given(LISTS, st.integers(1, 5), st.integers(1, 15))
def test_frequency_counts_appearances_then_rrf_then_id(lists: Lists, top: int, depth: int) -> None:
    cut = [own[:top] for own in lists]
    by_rrf = plain_rrf(lists, 60, 100)
    expected = sorted(by_rrf, key=lambda doc: (-sum(doc in own for own in cut), by_rrf.index(doc)))[:depth]
    fused = fuse_by_frequency(rankings(lists), ["t"] * len(lists), ["t"], depth=depth, top=top)
    assert fused.of(0).tolist() == expected


def test_closest_segment_with_ties_to_the_earlier() -> None:
    segments = on_grid(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    best, cosines = closest(on_grid(np.array([[0.1, 1.0], [1.0, 0.0]])), segments)
    assert best.tolist() == [1, 0]
    assert cosines[0] == pytest.approx(0.995, abs=2e-3)


UTILITIES = st.integers(1, 4).flatmap(
    lambda queries: st.lists(st.lists(st.integers(0, 3), min_size=queries, max_size=queries), min_size=1, max_size=7)
)


@given(UTILITIES, st.lists(st.integers(1, 5), min_size=7, max_size=7), st.integers(0, 12))
def test_coverage_takes_the_largest_gain_that_fits(items: list[list[int]], costs: list[int], budget: int) -> None:
    utility = np.array(items, dtype=np.float64).T
    chosen = choose(utility, costs[: len(items)], budget)

    def worth(taken: list[int]) -> float:
        return sum(math.log(1 + sum(items[i][q] for i in taken)) for q in range(len(items[0])))

    for step, item in enumerate(chosen):
        before = chosen[:step]
        left = budget - sum(costs[i] for i in before)
        fitting = [i for i in range(len(items)) if i not in before and costs[i] <= left]
        assert item in fitting
        assert worth([*before, item]) == pytest.approx(max(worth([*before, i]) for i in fitting))
    rest = budget - sum(costs[i] for i in chosen)
    assert all(
        i in chosen or costs[i] > rest or worth([*chosen, i]) == pytest.approx(worth(chosen)) for i in range(len(items))
    )


def test_one_item_is_parasol() -> None:
    grades = np.array([[3.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    assert choose(grades, [1, 1, 1], 1) == [int(np.argmax(np.log(grades + 1).sum(axis=0)))]


def test_nothing_to_choose_from() -> None:
    assert choose(np.empty((3, 0)), [], 10) == []
