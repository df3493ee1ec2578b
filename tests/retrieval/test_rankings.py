"""Rankings: their constructor accepts one order only, and `ranked` brings any hits into it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.retrieval.types import Rankings, offsets_of, ranked

NAN = float("nan")
HITS = st.lists(
    st.dictionaries(st.integers(0, 9), st.sampled_from([-1.5, 0.0, 0.25, 1.0, 7.0]), max_size=8), max_size=5
)


def made(lists: Sequence[Sequence[tuple[int, float]]], dtype: Any = np.float32) -> Rankings:
    hits = [hit for own in lists for hit in own]
    names = tuple(f"q{i}" for i in range(len(lists)))
    docs, scores = np.array([doc for doc, _ in hits], np.int32), np.array([score for _, score in hits], dtype)
    return Rankings(names, offsets_of([len(own) for own in lists]), docs, scores)


@given(HITS, st.randoms(use_true_random=False), st.booleans(), st.integers(1, 9))
def test_hits_in_any_order_become_rankings_by_score_then_row(
    hits: list[dict[int, float]], random: Any, descending: bool, depth: int
) -> None:
    lists = [random.sample(list(own.items()), len(own)) for own in hits]
    lists = [sorted(own, key=lambda hit: -hit[1]) for own in lists] if descending else lists
    names = [str(i) for i in range(len(lists))]
    docs = [np.array([doc for doc, _ in own], np.int32) for own in lists]
    given_docs = [own.tobytes() for own in docs]
    found = ranked(names, docs, [np.array([score for _, score in own], np.float32) for own in lists], depth)
    for i, own in enumerate(lists):
        expected = sorted(own, key=lambda hit: (-hit[1], hit[0]))[:depth]
        assert list(zip(found.of(i).tolist(), found.scores_of(i).tolist(), strict=True)) == expected
    assert [own.tobytes() for own in docs] == given_docs


@pytest.mark.slow
@given(HITS, st.randoms(use_true_random=False))
def test_the_constructor_accepts_no_other_order(hits: list[dict[int, float]], random: Any) -> None:
    lists = [random.sample(list(own.items()), len(own)) for own in hits]
    wrong = [i for i, own in enumerate(lists) if own != sorted(own, key=lambda hit: (-hit[1], hit[0]))]
    if not wrong:
        assert len(made(lists)) == len(lists)
    else:
        with pytest.raises(ValueError, match=f"query q{wrong[0]}: hit [2-8] is out of order"):
            made(lists)


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        pytest.param([[(1, 1.0)], [], [(2, 1.0), (1, 1.0)]], "query q2: hit 2 is out of order", id="a tie by row down"),
        pytest.param([[(1, 1.0)], [(1, 1.0), (2, 2.0)]], "query q1: hit 2 is out of order", id="scores that ascend"),
        pytest.param([[(1, 1.0), (1, 1.0)]], "query q0: hit 2 is out of order", id="a document twice"),
        pytest.param([[(1, 1.0)], [(1, 1.0), (2, NAN)]], "query q1: hit 2 is out of order", id="no number at the end"),
        pytest.param([[(1, NAN), (2, 1.0)]], "query q0: hit 2 is out of order", id="no number at the beginning"),
        pytest.param([[(3, 1.0)], [(1, NAN)]], "query q1: a score is not a number", id="no number alone"),
        pytest.param([[(3, 1.0)], [(1, 1.0), (0, 1 + 1e-9)]], None, id="a tie by row down in float32"),
    ],
)
def test_a_wrong_order_names_the_query(lists: list[list[tuple[int, float]]], words: str | None) -> None:
    if words is None:
        assert len(made([lists[0], lists[1][::-1]], np.float64)) == 2
        words = "query q1: hit 2 is out of order"
    with pytest.raises(ValueError, match=words):
        made(lists)


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        pytest.param([0, 2], "found 2 offsets for 2 queries", id="too few"),
        pytest.param([0, 3, 2], "query b: its offsets descend", id="descending"),
        pytest.param([1, 1, 2], "expected offsets from 0", id="not from zero"),
        pytest.param([0, 1, 3], "found offsets from 0 to 3 for 2 documents and 2 scores", id="too long"),
    ],
)
def test_offsets_that_do_not_fit_are_an_error(offsets: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Rankings(("a", "b"), np.array(offsets), np.array([1, 2], np.int32), np.array([2.0, 1.0]))


def test_neighbouring_queries_are_not_compared() -> None:
    found = made([[], [(5, 1.0)], [(1, 9.0), (2, 9.0)], [], [(0, 10.0)], []])
    assert [found.of(i).tolist() for i in range(len(found))] == [[], [5], [1, 2], [], [0], []]
    assert found.top(1).docs.tolist() == [5, 1, 0]
