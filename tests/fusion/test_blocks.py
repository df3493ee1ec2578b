"""Blocks of a ranking: every two documents meet, and sorting each block sorts the whole."""

from itertools import combinations, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.fusion.blocks import list_windows, make_blocks, merge_blocks

NUMBERS, SIZES = st.integers(0, 130), st.integers(2, 40)


@pytest.mark.slow
@given(NUMBERS, SIZES)
def test_every_two_documents_share_a_block_of_the_size_that_was_asked_for(documents: int, size: int) -> None:
    blocks = make_blocks(documents, size)
    met = {pair for block in blocks for pair in combinations(block, 2)}
    assert met == set(combinations(range(documents), 2))
    for block in blocks:
        assert 1 < len(block) <= size
        assert block == sorted(set(block))


@pytest.mark.slow
@given(NUMBERS, SIZES, st.integers(0, 5))
def test_merged_blocks_are_the_sorted_whole_if_all_blocks_follow_one_order(
    documents: int, size: int, seed: int
) -> None:
    worth = list(range(documents))
    Random(seed).shuffle(worth)
    orders = [sorted(block, key=worth.__getitem__) for block in make_blocks(documents, size)]
    assert merge_blocks(documents, orders) == sorted(range(documents), key=worth.__getitem__)


@pytest.mark.slow
@given(st.integers(2, 60), st.integers(2, 20), st.randoms(use_true_random=False))
def test_any_orders_merge_into_each_document_once_whatever_the_order_of_the_blocks(
    documents: int, size: int, chance: Random
) -> None:
    orders = make_blocks(documents, size)
    for order in orders:
        chance.shuffle(order)
    merged = merge_blocks(documents, orders)
    assert sorted(merged) == list(range(documents))
    chance.shuffle(orders)
    assert merge_blocks(documents, orders) == merged


@given(st.integers(0, 60), st.integers(2, 20))
def test_blocks_left_in_their_order_change_nothing(documents: int, size: int) -> None:
    assert merge_blocks(documents, make_blocks(documents, size)) == list(range(documents))
    assert merge_blocks(documents, []) == list(range(documents))


@pytest.mark.parametrize(
    ("documents", "size", "blocks"),
    [
        (0, 20, 0),
        (1, 20, 0),
        (2, 2, 1),
        (20, 20, 1),
        (21, 20, 3),
        (30, 20, 3),
        (40, 20, 6),
        (50, 20, 10),
        (100, 20, 30),
    ],
)
def test_the_number_of_blocks(documents: int, size: int, blocks: int) -> None:
    assert len(make_blocks(documents, size)) == blocks


@pytest.mark.parametrize("documents", [30, 40, 50, 60, 70, 80, 98, 100])
def test_blocks_are_hardly_more_than_documents_times_blocks_of_each_by_size(documents: int) -> None:
    blocks = make_blocks(documents, 20)
    of_each = sum(0 in block for block in blocks)
    assert len(blocks) <= 1.05 * documents * of_each / 20


@given(st.integers(0, 130), SIZES, st.data())
def test_windows_overlap_and_reach_from_the_last_document_to_the_first(
    documents: int, size: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, size - 1))
    windows = list_windows(documents, size, stride)
    assert {place for window in windows for place in window} == (set(range(documents)) if documents > 1 else set())
    for lower, upper in pairwise(windows):
        assert upper.start < lower.start < upper.stop < lower.stop
    for window in windows:
        assert len(window) <= size
    assert len(windows) == (1 + max(0, -(-(documents - size) // stride)) if documents > 1 else 0)


@given(st.integers(2, 60), st.integers(2, 20), st.integers(0, 5), st.data())
def test_windows_bring_the_best_documents_to_the_top(documents: int, size: int, seed: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, size - 1))
    ranking = list(range(documents))
    Random(seed).shuffle(ranking)
    for window in list_windows(documents, size, stride):
        ranking[window.start : window.stop] = sorted(ranking[window.start : window.stop])
    first = min(documents, size - stride)
    assert ranking[:first] == list(range(first))
