"""Parasol: its score, and its top k by bounds, which equals the top k of judging all pairs."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keystone.fusion.parasol import Pairs, Top, TopSettings, choose_wave, extend_top, find_top, parasol

NAN = math.nan
Grades = NDArray[np.float64]

GRADE = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 3.0, NAN]), st.floats(0, 3))
WHOLE = st.sampled_from([0.0, 1.0, 2.0, 3.0])


def tables(grade: st.SearchStrategy[float]) -> st.SearchStrategy[Grades]:
    def table(shape: tuple[int, int]) -> st.SearchStrategy[Grades]:
        return st.lists(grade, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]).map(
            lambda values: np.array(values, dtype=np.float64).reshape(shape)
        )

    return st.tuples(st.integers(0, 5), st.integers(0, 9)).flatmap(table)


def run_search(
    grades: Grades, k: int, wave: int | None, grid: bool = False, scores: Grades | None = None
) -> tuple[Top, list[Pairs]]:
    """Find the top k with the grades of a table; returns it with the waves that were asked."""
    search, waves = find_top(len(grades), grades.shape[1], TopSettings(k, wave, grid), scores), list[Pairs]()
    try:
        pairs = next(search)
        while True:
            waves.append(pairs)
            pairs = search.send(grades[pairs])
    except StopIteration as stop:
        top: Top = stop.value
        return top, waves


@given(
    st.one_of(tables(GRADE), tables(WHOLE)),
    st.integers(1, 11),
    st.one_of(st.none(), st.integers(1, 12)),
    st.booleans(),
    st.sampled_from([None, 0, 1]),
)
def test_the_top_k_equals_that_of_judging_all_pairs(
    grades: Grades, k: int, wave: int | None, grid: bool, seed: int | None
) -> None:
    drawn = None if seed is None else np.random.default_rng(seed).choice([NAN, 0.01, 0.02, 0.03], grades.shape)
    top, waves = run_search(grades, k, wave, grid, drawn)
    scores = parasol(grades)
    best = sorted(range(len(scores)), key=lambda d: (-scores[d], d))[:k]
    assert top.documents.tolist() == best
    assert top.scores.tolist() == scores[best].tolist()
    assert top.asked[:, best].all()

    asked = [(d, q) for queries, documents in waves for q, d in zip(queries.tolist(), documents.tolist(), strict=True)]
    assert len(asked) == len(set(asked)) == top.judged
    np.testing.assert_array_equal(top.grades, np.where(top.asked, grades, NAN))
    for queries, documents in waves:
        own = list(zip(documents.tolist(), queries.tolist(), strict=True))
        assert own == sorted(own)
        assert own
        if wave is not None:
            assert len(set(documents.tolist()) if grid else own) <= wave
        if grid:
            assert len(own) == len(set(documents.tolist())) * len(grades)
    if wave is None:
        assert len(waves) == (grades.size > 0)


@pytest.mark.slow
@pytest.mark.parametrize("wave", [1, 3])
def test_the_top_k_equals_that_of_judging_all_pairs_if_scores_are_close(wave: int) -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        grades = random.choice([0.0, 1.0, 2.0, 3.0], (random.integers(2, 4), random.integers(3, 7)))
        k = int(random.integers(1, 4))
        top, _ = run_search(grades, k, wave)
        assert top.documents.tolist() == np.argsort(-parasol(grades), kind="stable")[:k].tolist()
        assert top.asked[:, top.documents].all()


@given(tables(WHOLE), st.integers(1, 6))
def test_waves_of_one_pair_ask_only_necessary_pairs(grades: Grades, k: int) -> None:
    """At each question, fewer than k other documents can be above the document asked about, whatever their grades."""
    _, waves = run_search(grades, k, 1)
    known = np.full(grades.shape, NAN)
    for (query,), (document,) in waves:
        upper = parasol(np.where(np.isnan(known), 3.0, known))
        above = (upper > upper[document]) | ((upper == upper[document]) & (np.arange(len(upper)) < document))
        assert np.count_nonzero(above) < k
        known[query, document] = grades[query, document]


@pytest.mark.parametrize(
    ("grades", "scores"),
    [
        pytest.param([[3.0], [1.0], [0.0]], [math.log(8)], id="natural logarithms of grade plus one"),
        pytest.param([[2.0, NAN], [NAN, NAN]], [math.log(3), 0.0], id="an absent grade adds nothing"),
        pytest.param([[0.5]], [math.log(1.5)], id="an expected grade that is no integer"),
        pytest.param(np.empty((0, 2)), [0.0, 0.0], id="no query"),
        pytest.param(np.empty((2, 0)), [], id="no document"),
    ],
)
def test_the_score_is_the_sum_of_the_papers_logarithms(grades: Grades, scores: list[float]) -> None:
    assert parasol(np.array(grades)).tolist() == pytest.approx(scores, abs=1e-11)


@given(st.lists(WHOLE, min_size=1, max_size=40).flatmap(lambda own: st.tuples(st.just(own), st.permutations(own))))
def test_the_order_of_the_queries_does_not_change_a_score(columns: tuple[list[float], list[float]]) -> None:
    one, other = parasol(np.array(columns).T)
    assert one == other


def test_two_grades_of_one_tie_with_one_grade_of_three() -> None:
    one, other = parasol(np.array([[1.0, 3.0], [1.0, 0.0], [2.0, 2.0]]))
    assert one == other


def test_a_document_that_cannot_reach_the_top_is_asked_about_once() -> None:
    grades = np.zeros((4, 50))
    grades[:, 7] = 3.0
    top, _ = run_search(grades, 1, 1)
    assert top.documents.tolist() == [7]
    assert top.judged <= 50 + 3


def test_queries_with_the_lowest_expected_grades_are_asked_first() -> None:
    """If the second query gave only grades of 0, new documents are asked about it first."""
    grades, asked = np.full((2, 6), NAN), np.zeros((2, 6), dtype=np.bool_)
    grades[:, :3], asked[:, :3] = [[3.0], [0.0]], True
    queries, documents = choose_wave(grades, asked, TopSettings(1, 3))
    assert (queries.tolist(), documents.tolist()) == ([1, 1, 1], [3, 4, 5])


def test_a_document_is_asked_first_about_queries_for_which_retrieval_ranked_it_lower() -> None:
    scores = np.array([[NAN, 0.9], [0.5, 0.1]])
    _, waves = run_search(np.ones((2, 2)), 1, 2, scores=scores)
    assert (waves[0][0].tolist(), waves[0][1].tolist()) == ([0, 1], [0, 1])


@pytest.mark.parametrize(
    ("run", "message"),
    [
        pytest.param(lambda: run_search(np.array([[3.5]]), 1, 1), "found 3.5, expected 0 to 3", id="too high"),
        pytest.param(lambda: run_search(np.array([[-1.0]]), 1, 1), "found -1, expected 0 to 3", id="too low"),
        pytest.param(lambda: run_search(np.array([[1.0]]), 0, 1), "expected at least 1", id="k of 0"),
        pytest.param(lambda: run_search(np.array([[1.0]]), 1, 0), "expected at least 1", id="wave of 0"),
    ],
)
def test_a_grade_out_of_range_and_a_size_below_one_are_refused(run: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run()


@given(tables(GRADE), st.integers(1, 11), st.integers(1, 12), st.integers(0, 9))
def test_a_top_k_by_bounds_that_is_extended_equals_that_of_all_documents(
    grades: Grades, k: int, wave: int, split: int
) -> None:
    top, _ = run_search(grades[:, :split], k, wave)
    extended, scores = extend_top(top, grades[:, split:], k), parasol(grades)
    best = sorted(range(len(scores)), key=lambda d: (-scores[d], d))[:k]
    assert extended.documents.tolist() == best
    assert extended.scores.tolist() == scores[best].tolist()
    assert extended.judged == top.judged + grades[:, split:].size
