"""The arithmetic of searches of OpenSearch, without a server."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.retrieval.opensearch.dense import ONE_BITS, inner_products, read_passage_scores
from keystone.retrieval.opensearch.sparse import find_best_sums
from keystone.retrieval.types import Rankings, ranked


@given(st.lists(st.integers(-5_000_000, 2**24), min_size=1, max_size=50))
def test_scores_of_scaled_queries_become_the_exact_products(multiples: list[int]) -> None:
    products = np.array(multiples) / 2.0**24
    scaled = (products * 2.0**23).astype(np.float32)
    one = np.float32(1)
    scores = np.where(scaled >= 0, scaled + one, one / (one - np.minimum(scaled, 0)))
    exact = (products < 1 - 2.0**-23) | (products == 1)
    assert inner_products(scores.astype(np.float64))[exact].tolist() == products[exact].tolist()


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=50))
def test_scores_of_passages_keep_order_and_bits_of_their_means(numbers: list[float]) -> None:
    means = np.sort(np.array(numbers, dtype=np.float32)) + np.float32(0)  # the script gives no -0
    sizes = np.abs(means).view(np.int32)
    scores = np.where(means < 0, ONE_BITS - sizes, ONE_BITS + sizes).astype(np.int32).view(np.float32)
    assert np.all(np.isfinite(scores) & (scores >= 0))
    assert np.array_equal(np.diff(scores) > 0, np.diff(means) > 0)
    assert read_passage_scores(scores.astype(np.float64)).tobytes() == means.tobytes()


@pytest.mark.parametrize("score", [-1.0, 3e38])
def test_a_score_that_no_passages_have_is_an_error(score: float) -> None:
    with pytest.raises(ValueError, match="of passages, expected 0 to"):
        read_passage_scores(np.array([score]))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=25), min_size=1, max_size=4),
    st.integers(1, 12),
)
def test_the_best_sums_equal_those_of_adding_all_lists(lists: list[list[tuple[int, int]]], depth: int) -> None:
    searches = [dict(own) for own in lists]
    names = [str(number) for number in range(len(searches))]

    def best(deep: int) -> Rankings:
        docs = [np.array(list(own), dtype=np.int32) for own in searches]
        return ranked(names, docs, [np.array(list(own.values()), dtype=np.float32) for own in searches], deep)

    def sums(rows: np.ndarray[tuple[int], np.dtype[np.int32]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([sum(own.get(row, 0) for own in searches) for row in rows.tolist()], dtype=np.float64)

    everything = np.unique([row for own in searches for row in own]).astype(np.int32)
    order = np.lexsort((everything, -sums(everything)))[:depth]
    rows, totals = find_best_sums(best, sums, depth)
    assert rows.tolist() == everything[order].tolist()
    assert totals.tolist() == sums(everything)[order].tolist()
