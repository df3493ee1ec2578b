"""Bradley-Terry ratings against figures of choix and arena-rank, and against SciPy's own maximisation."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from keystone.runs.evaluation.arena.fit import (
    RIDGE,
    find_bootstrap_intervals,
    find_groups,
    find_sandwich_widths,
    fit_ratings,
)

FOUR = {
    (0, 1): (6, 3, 1),
    (0, 2): (7, 2, 1),
    (0, 3): (8, 1, 1),
    (1, 2): (5, 4, 1),
    (1, 3): (6, 2, 2),
    (2, 3): (5, 3, 2),
}
SLOTS = {(0, 1): (8, 2), (1, 0): (5, 5), (0, 2): (9, 1), (2, 0): (3, 7), (1, 2): (7, 3), (2, 1): (5, 5)}


def count(runs: int, outcomes: Mapping[tuple[int, int], tuple[int, ...]]) -> NDArray[np.float64]:
    counts = np.zeros((3, runs, runs))
    for (first, second), own in outcomes.items():
        counts[: len(own), first, second] = own
    return counts


CONVERGED = [
    (FOUR, [1146.9778225, 1018.0490699, 961.6519737, 873.3211338], [100.2816664, 91.831613, 91.832327, 92.8632559]),
    (
        {
            (i, j): ((i + 3 * j) % 4 + j, (3 * i + j) % 5 + i, i * j % 3)
            for i in range(8)
            for j in range(8)
            if (i + j) % 3
        },
        [1181.0254623, 1067.4673372, 1037.3192356, 1004.6666955, 952.3400137, 953.8771294, 914.5883979, 888.7157284],
        [88.0153536, 65.9577939, 77.2264691, 60.9930348, 61.8068401, 64.8979357, 54.8330756, 59.1117217],
    ),
]
"""Battles with ratings and half-widths of `BradleyTerry(ftol=0, gtol=1e-12)` of arena-rank 0.1.1, whose floats are
double. With its own tolerances of 1e-9 it stops up to .001 points away from the maximum of the same likelihood."""


@pytest.mark.parametrize(("outcomes", "ratings", "widths"), CONVERGED, ids=["60 battles", "464 battles"])
def test_ratings_and_intervals_are_those_of_arena_rank_run_to_convergence(
    outcomes: dict[tuple[int, int], tuple[int, ...]], ratings: list[float], widths: list[float]
) -> None:
    counts = count(len(ratings), outcomes)
    fit = fit_ratings(counts)
    assert fit.ratings == pytest.approx(ratings, abs=1e-6, rel=0)
    assert find_sandwich_widths(counts, fit) == pytest.approx(widths, abs=1e-6, rel=0)


def test_ratings_are_those_of_choix() -> None:
    theta = [1.042066327, 0.388373212, 0.214826789, 0.026863659, -0.274352935, -0.265504586, -0.491668705, -0.640603762]
    assert fit_ratings(count(8, CONVERGED[1][0])).theta == pytest.approx(theta, abs=1e-8, rel=0)
    counts = count(4, FOUR)
    theta = [0.846072358, 0.103898798, -0.220748984, -0.729222172]
    assert fit_ratings(counts).theta == pytest.approx(theta, abs=1e-8, rel=0)
    assert fit_ratings(counts, ridge=0.1).ratings == pytest.approx([1144.9104, 1017.8492, 962.1680, 875.0724], abs=1e-4)
    counts[2] = 0
    assert fit_ratings(counts).theta == pytest.approx([0.978173, 0.149193, -0.231961, -0.895404], abs=1e-6)


def test_three_wins_to_one_are_191_points() -> None:
    one, other = fit_ratings(count(2, {(0, 1): (3, 1)})).ratings
    assert one - other == pytest.approx(190.8485, abs=1e-4)


def test_the_first_slot_has_a_term_of_its_own() -> None:
    counts = count(3, SLOTS)
    fit, without = fit_ratings(counts, with_slot=True), fit_ratings(counts)
    assert fit.theta == pytest.approx([0.707091, -0.078886, -0.628205], abs=1e-6)
    assert fit.gamma == pytest.approx(0.579931, abs=1e-6)
    assert without.theta == pytest.approx([0.656017, -0.073321, -0.582696], abs=1e-6)
    assert 2 * (fit.log_likelihood - without.log_likelihood) == pytest.approx(3.9777, abs=1e-4)


@pytest.mark.parametrize(
    ("outcomes", "groups"),
    [
        pytest.param({(0, 1): (5, 0, 0), (1, 2): (1, 1, 0), (2, 0): (0, 4, 0)}, [[0], [1, 2]], id="an unbeaten run"),
        pytest.param({(0, 1): (1, 1, 0)}, [[0, 1], [2]], id="a run without a battle"),
        pytest.param({}, [[0], [1], [2]], id="no battle"),
    ],
)
def test_a_ridge_is_named_where_no_maximum_exists(
    outcomes: dict[tuple[int, int], tuple[int, ...]], groups: list[list[int]]
) -> None:
    counts = count(3, outcomes)
    fit = fit_ratings(counts)
    assert fit.ridge == RIDGE
    assert np.isfinite(fit.ratings).all()
    assert fit.ratings.mean() == pytest.approx(1000)
    assert sorted(find_groups(counts)) == groups


CIRCLE = {(0, 1): (9, 0), (1, 2): (9, 0), (2, 0): (9, 0), (1, 0): (0, 9), (2, 1): (0, 9), (0, 2): (0, 9)}


@pytest.mark.parametrize(
    ("outcomes", "ridge"),
    [
        pytest.param({(0, 1): (10, 0), (1, 0): (5, 5)}, RIDGE, id="one run wins whenever it is first"),
        pytest.param({(0, 1): (5, 5), (1, 0): (10, 0)}, RIDGE, id="the other one does"),
        pytest.param({(0, 1): (9, 0), (1, 0): (9, 0)}, RIDGE, id="the first one always wins"),
        pytest.param({(0, 1): (0, 9), (1, 0): (0, 9)}, RIDGE, id="the second one always wins"),
        pytest.param({(0, 1): (9, 0), (1, 0): (9, 0), (0, 2): (4, 5), (2, 0): (9, 0)}, RIDGE, id="all but one run"),
        pytest.param({(0, 1): (9, 1), (1, 0): (9, 1)}, 0, id="the first one mostly wins"),
        pytest.param(CIRCLE, 0, id="a circle in both orders"),
    ],
)
def test_a_ridge_bounds_a_first_slot_term_that_no_battle_bounds(
    outcomes: dict[tuple[int, int], tuple[int, ...]], ridge: float
) -> None:
    counts = count(1 + max(max(pair) for pair in outcomes), outcomes)
    fit = fit_ratings(counts, with_slot=True)
    assert (fit.ridge, len(find_groups(counts))) == (ridge, 1)
    assert max(*np.abs(fit.theta), abs(fit.gamma)) < 5
    assert fit_ratings(counts).ridge == 0


def test_ties_alone_give_equal_ratings_and_no_ridge() -> None:
    fit = fit_ratings(count(3, {(0, 1): (0, 0, 4), (1, 2): (0, 0, 1)}))
    assert (fit.ratings == pytest.approx([1000] * 3), fit.ridge) == (True, 0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=12, max_size=12), st.booleans())
def test_the_fit_is_the_maximum_that_scipy_finds(numbers: list[int], with_slot: bool) -> None:
    counts = np.zeros((3, 3, 3))
    counts[:2][:, ~np.eye(3, dtype=bool)] = np.reshape(numbers, (2, 6))
    fit = fit_ratings(counts, with_slot)

    def lose(parameters: NDArray[np.float64]) -> float:
        theta, gamma = parameters[:3], parameters[3] * with_slot
        logits = theta[:, None] - theta + gamma
        return float((counts[0] * np.logaddexp(0, -logits) + counts[1] * np.logaddexp(0, logits)).sum())

    found = minimize(lose, np.zeros(4), tol=1e-10).x
    assert fit.theta == pytest.approx(found[:3] - found[:3].mean(), abs=1e-4)
    assert -fit.log_likelihood <= lose(found) + 1e-9


def test_intervals_widen_where_narratives_disagree() -> None:
    alike, apart = np.zeros((20, 1, 3, 2, 2)), np.zeros((20, 1, 3, 2, 2))
    alike[:, 0, :2, 0, 1] = 3, 2
    apart[:12, 0, 0, 0, 1] = apart[12:, 0, 1, 0, 1] = 5
    narrow, wide = (find_bootstrap_intervals(one)[0] for one in (alike, apart))
    assert narrow[0, 1] - narrow[0, 0] == pytest.approx(0, abs=1e-6)
    assert wide[0, 1] - wide[0, 0] > 100
    assert np.isnan(find_bootstrap_intervals(alike[:1])[0]).all()
