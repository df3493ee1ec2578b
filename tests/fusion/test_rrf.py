"""RRF in two stages, the covering set and closest segments: each equals a plain implementation of its formula."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.fusion.closest import find_closest_segments
from keystone.fusion.fuse import fuse_groups, fuse_systems
from keystone.fusion.lists import Groups, group_queries_by_topic
from keystone.fusion.parasol import choose_covering, parasol
from keystone.indexing.embedder import round_to_grid
from keystone.retrieval.types import Rankings, offsets_of

Lists = Sequence[Sequence[int]]

LISTS = st.lists(st.lists(st.integers(0, 12), unique=True, max_size=8), min_size=1, max_size=6)
WEIGHTS = st.lists(st.sampled_from([0, 0.1, 0.3, 1, 1.7, 2, 3]), min_size=6, max_size=6)


@pytest.fixture(scope="module", params=[True, False], ids=["compiled", "numpy"], autouse=True)
def kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test here fuses by the compiled loop, and by NumPy as processes without Numba do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keystone.fusion.fuse._is_kernel_due", lambda _rows: request.param)
        yield


def rankings(lists: Lists) -> Rankings:
    flat = [doc for own in lists for doc in own]
    scores = [1.0 / (rank + 1) for own in lists for rank in range(len(own))]
    names = tuple(str(i) for i in range(len(lists)))
    return Rankings(names, offsets_of([len(own) for own in lists]), np.array(flat, np.int32), np.array(scores))


def fuse_one_topic(lists: Lists, k: float = 60, depth: int = 100, weights: Sequence[float] | None = None) -> Rankings:
    return fuse_groups([rankings(lists)], group_queries_by_topic(["t"] * len(lists), ["t"], weights), k, depth)


def fuse_plainly(lists: Lists, k: float, depth: int, weights: Sequence[float] | None = None) -> list[tuple[int, float]]:
    """Add the terms as the paper writes them, by rank, then weight; ties go to the smaller document."""
    places: dict[int, list[tuple[int, float]]] = {}
    for own, weight in zip(lists, weights or [1.0] * len(lists), strict=True):
        for rank, doc in enumerate(own if weight else [], start=1):
            places.setdefault(doc, []).append((rank, weight))
    score = dict.fromkeys(places, 0.0)
    for doc, found in places.items():
        for rank, weight in sorted(found):
            score[doc] += weight / (k + rank)
    return sorted(score.items(), key=lambda pair: (-pair[1], pair[0]))[:depth]


def pairs_of(fused: Rankings, i: int = 0) -> list[tuple[int, float]]:
    return list(zip(fused.of(i).tolist(), fused.scores_of(i).tolist(), strict=True))


@given(LISTS, st.sampled_from([0, 0.1, 10, 60, 60.3, 10**6]), st.integers(1, 15), WEIGHTS)
def test_rrf_equals_the_plain_sum_to_the_last_bit(lists: Lists, k: float, depth: int, drawn: list[float]) -> None:
    weights = drawn[: len(lists)]
    fused = fuse_one_topic(lists, k, depth, weights)
    assert pairs_of(fused) == fuse_plainly(lists, k, depth, weights)


@pytest.mark.parametrize(
    ("weights", "most"),
    [
        pytest.param([1, 1, 1], 2**31 - 1, id="large document numbers"),
        pytest.param([1, 1, 1], 3500, id="most documents in every list"),
        pytest.param([1e-6, 1, 1e6], 9000, id="weights of very different sizes"),
    ],
)
def test_rrf_equals_the_plain_sum_on_long_lists(weights: list[float], most: int) -> None:
    random = np.random.default_rng(1)
    lists = [list(dict.fromkeys(random.integers(0, most, 4000, endpoint=True).tolist())) for _ in weights]
    assert pairs_of(fuse_one_topic(lists, 60, 10**6, weights)) == fuse_plainly(lists, 60, 10**6, weights)


def test_rrf_orders_many_ties_by_document() -> None:
    lists = [[doc] for doc in reversed(range(500))]
    assert fuse_one_topic(lists, depth=500).of(0).tolist() == list(range(500))


@given(LISTS, st.permutations(range(6)), WEIGHTS)
def test_rrf_gives_the_same_bytes_for_any_order_of_the_lists(
    lists: Lists, order: list[int], drawn: list[float]
) -> None:
    order = [i for i in order if i < len(lists)]
    one = fuse_one_topic(lists, weights=drawn[: len(lists)])
    other = fuse_one_topic([lists[i] for i in order], weights=[drawn[i] for i in order])
    assert one.docs.tobytes() == other.docs.tobytes()
    assert one.scores.tobytes() == other.scores.tobytes()


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_negative_or_infinite_weight_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weight is negative or not finite"):
        fuse_one_topic([[1], [2]], weights=[1, weight])


def test_no_lists_and_empty_lists_give_empty_rankings() -> None:
    assert fuse_groups([], Groups([], []), 60, 5).query_ids == ()
    assert fuse_groups([rankings([])], Groups(["x", "y"], [[], []]), 60, 5).offsets.tolist() == [0, 0, 0]


def test_the_first_stage_pairs_the_systems_of_each_query() -> None:
    bm25, dense = rankings([[1, 2, 3], [4, 5]]), rankings([[2, 1], [5, 6]])
    hybrid = fuse_systems([bm25, dense])
    assert [hybrid.of(0).tolist(), hybrid.of(1).tolist()] == [[1, 2, 3], [5, 4, 6]]
    assert hybrid.scores_of(0)[0] == pytest.approx(1 / 61 + 1 / 62)
    assert hybrid.query_ids == bm25.query_ids


def test_systems_of_the_first_stage_have_weights() -> None:
    systems = [rankings([[1, 2]]), rankings([[2, 1]]), rankings([[]])]
    assert fuse_systems(systems, weights=[1, 2, 9]).scores_of(0)[0] == pytest.approx(1 / 62 + 2 / 61)
    alike, plain = fuse_systems(systems, weights=[1, 1, 1]), fuse_systems(systems)
    assert (alike.docs.tolist(), alike.scores.tolist()) == (plain.docs.tolist(), plain.scores.tolist())


def test_topics_keep_their_order_and_a_topic_without_hits_stays_empty() -> None:
    fused = fuse_groups([rankings([[1], [2], []])], group_queries_by_topic(["b", "a", "c"], ["a", "b", "c"]), 60, 9)
    assert [fused.of(i).tolist() for i in range(3)] == [[2], [1], []]
    assert fused.query_ids == ("a", "b", "c")


def test_k_decides_between_one_first_place_and_two_middling_ones() -> None:
    lists = [[7, 1, 2, 3, 9], [4, 5, 6, 8, 9]]
    steep, gradual = (fuse_one_topic(lists, k).of(0)[0] for k in (1, 60))
    assert (steep, gradual) == (4, 9)


def test_groups_may_share_members() -> None:
    lists = rankings([[1, 2], [3]])
    fused = fuse_groups([lists], Groups(["x", "y"], [[(0, 0)], [(0, 0), (0, 1)]]), 60, 5)
    assert [fused.of(0).tolist(), fused.of(1).tolist()] == [[1, 2], [1, 3, 2]]


def test_the_earlier_of_two_equally_close_segments_is_found() -> None:
    segments = round_to_grid(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    best, cosines = find_closest_segments(round_to_grid(np.array([[0.1, 1.0], [1.0, 0.0]])), segments)
    assert best.tolist() == [1, 0]
    assert cosines[0] == pytest.approx(0.995, abs=2e-3)


UTILITIES = st.integers(1, 4).flatmap(
    lambda queries: st.lists(
        st.lists(st.sampled_from([0, 1, 2, 3, math.nan]), min_size=queries, max_size=queries), min_size=1, max_size=7
    )
)


@pytest.mark.slow
@given(
    UTILITIES,
    st.lists(st.integers(1, 5), min_size=7, max_size=7),
    st.integers(0, 12),
    st.sampled_from([0, 1, 2.5, 3, 6, math.inf]),
)
def test_coverage_takes_the_largest_gain_that_fits(
    items: list[list[float]], costs: list[int], budget: int, cap: float
) -> None:
    utility = np.array(items, dtype=np.float64).T
    chosen = choose_covering(utility, costs[: len(items)], budget, cap)

    def add_up_coverage(taken: list[int]) -> float:
        sums = [sum(items[i][q] for i in taken if not math.isnan(items[i][q])) for q in range(len(items[0]))]
        return sum(math.log(1 + min(total, cap)) for total in sums)

    for step, item in enumerate(chosen):
        before = chosen[:step]
        left = budget - sum(costs[i] for i in before)
        affordable = [i for i in range(len(items)) if i not in before and costs[i] <= left]
        worths = {i: add_up_coverage([*before, i]) for i in affordable}
        assert worths[item] > add_up_coverage(before) + 1e-9
        assert item == next(i for i in affordable if worths[i] > max(worths.values()) - 1e-9)
    rest = budget - sum(costs[i] for i in chosen)
    assert all(
        i in chosen or costs[i] > rest or add_up_coverage([*chosen, i]) == pytest.approx(add_up_coverage(chosen))
        for i in range(len(items))
    )


@given(UTILITIES, st.sampled_from([3, math.inf]))
def test_a_set_of_one_item_is_the_first_by_parasol(items: list[list[float]], cap: float) -> None:
    scores = parasol(grades := np.array(items, dtype=np.float64).T)
    assert choose_covering(grades, [1] * len(items), 1, cap) == ([int(np.argmax(scores))] if scores.any() else [])


@pytest.mark.parametrize(
    ("grades", "cap", "chosen"),
    [
        pytest.param([[3, 3, 3]], 3, [0], id="one exact document covers a query"),
        pytest.param([[1, 1, 1, 1]], 3, [0, 1, 2], id="three related documents cover a query"),
        pytest.param([[3, 3, 0], [3, 3, 1]], 3, [0], id="a copy and a weaker document add nothing"),
        pytest.param([[3, 3, 0], [0, 0, 1]], 3, [0, 2], id="an uncovered query goes before a copy"),
        pytest.param([[3, 3]], 6, [0, 1], id="a higher cap takes a second document"),
        pytest.param([[0, 0], [math.nan, math.nan]], 3, [], id="no document covers any query"),
    ],
)
def test_the_set_ends_when_no_item_can_cover_another_query(
    grades: list[list[float]], cap: float, chosen: list[int]
) -> None:
    assert choose_covering(np.array(grades, dtype=np.float64), [1] * len(grades[0]), 10, cap) == chosen


def test_without_items_the_set_is_empty() -> None:
    assert choose_covering(np.empty((3, 0)), [], 10) == []
