"""The cut of a ranking: expected F1 against enumeration, isotonic values, calibration, mixtures."""

import tracemalloc
from itertools import product

import numpy as np
import pytest

from keystone.fusion.depth import (
    GRADE_RATIOS,
    calibrate,
    cut_by_budget,
    cut_by_f1,
    cut_by_precision,
    describe_by_system,
    describe_rows,
    expect_f1,
    fit_calibration,
    make_monotone,
    measure_reliability,
    measure_top_error,
    separate_scores,
    weigh_by_grades,
)


def enumerate_f1(probabilities: list[float], k: int) -> float:
    """The expected F1 of the first k rows, over every set of relevant rows."""
    total = 0.0
    for relevant in product((0, 1), repeat=len(probabilities)):
        chance = float(np.prod([p if one else 1 - p for p, one in zip(probabilities, relevant, strict=True)]))
        total += chance * 2 * sum(relevant[:k]) / (k + sum(relevant)) if k else 0
    return total


@pytest.mark.parametrize(
    ("probabilities", "best", "value"),
    [([0.9, 0.7, 0.4, 0.2], 2, 0.752240), ([0.6, 0.5, 0.3, 0.3, 0.1], 4, 0.547275), ([], 0, 0.0)],
)
def test_the_cut_has_the_best_expected_f1(probabilities: list[float], best: int, value: float) -> None:
    found = expect_f1(np.array(probabilities))
    assert cut_by_f1(np.array(probabilities)) == best
    assert found[best] == pytest.approx(value, abs=1e-6)
    assert found == pytest.approx([enumerate_f1(probabilities, k) for k in range(len(probabilities) + 1)])


def test_expected_f1_of_a_long_ranking_needs_no_memory_for_all_pairs_of_rows() -> None:
    tracemalloc.start()
    expect_f1(np.linspace(0.5, 0.001, 1000))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1000**2  # bytes; a number for each two rows takes four times as much


def test_precision_and_budget_cut_where_they_say() -> None:
    one, other = np.array([0.9, 0.7, 0.4, 0.2]), np.array([0.8, 0.1])
    assert [cut_by_precision(one, goal) for goal in (0.95, 0.8, 0.6, 0.1)] == [0, 2, 3, 4]
    assert [cut_by_budget([one, other], rows) for rows in (0, 3, 9)] == [[0, 0], [2, 1], [4, 2]]


def test_isotonic_values_and_calibration_error_are_those_known() -> None:
    assert make_monotone(np.array([0.0, 1, 0, 0, 1, 1])) == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 1, 1])
    p = np.array([0.1, 0.15, 0.35, 0.45, 0.8, 0.85, 0.95])
    relevant = np.array([0, 0, 1, 0, 1, 1, 1], dtype=bool)
    assert measure_reliability(p, relevant, 5).error == pytest.approx(0.25)


def test_a_calibration_finds_the_probabilities_that_made_the_labels() -> None:
    draw = np.random.default_rng(1)
    features = np.concatenate([describe_rows(np.sort(draw.random(100))[::-1]) for _ in range(200)])
    truth = np.clip(features[:, 4] ** 2, 0.01, 0.99)
    weights = fit_calibration(features, draw.random(len(truth)) < truth)
    scores = np.sort(draw.random(100))[::-1]
    assert np.abs(calibrate(scores, weights) - np.clip(describe_rows(scores)[:, 4] ** 2, 0.01, 0.99)).mean() < 0.05


def test_a_document_that_a_system_lacks_comes_after_its_last_one() -> None:
    found = describe_by_system("acxb", [("a", 9.5), ("b", 2.0), ("c", -1.0)])
    assert found == pytest.approx(np.array([[0, 9.5], [np.log(3), -1], [np.log(4), -1], [np.log(2), 2]]))
    assert describe_by_system("a", []) == pytest.approx(np.array([[0, 0]]))
    assert describe_by_system("", [("a", 1.0)]).shape == (0, 2)


def test_a_mixture_separates_two_kinds_of_scores() -> None:
    draw = np.random.default_rng(2)
    scores = np.sort(np.concatenate([draw.normal(6, 0.5, 20), draw.exponential(1, 180)]))[::-1]
    found = separate_scores(scores)
    assert found is not None
    assert np.all(np.diff(found) <= 0)
    assert 17 <= cut_by_f1(found) <= 23
    assert separate_scores(np.ones(50)) is None


def test_the_cut_of_known_densities_is_that_of_the_threshold_by_which_f1_is_best() -> None:
    grid = np.linspace(0, 10, 100_001)
    one, other = 0.1 * np.exp(-((grid - 3) ** 2) / 2) / np.sqrt(2 * np.pi), 0.9 * np.exp(-grid)
    posterior = one / (one + other)
    places = np.searchsorted(grid, [2.387, 3, 4, 5, 6])
    assert posterior[places] == pytest.approx([0.28556, 0.470992, 0.594798, 0.470992, 0.165735], abs=2e-4)
    share = np.cumsum(one + other) / (one + other).sum()
    drawn = posterior[np.searchsorted(share, (np.arange(200) + 0.5) / 200)][::-1]  # of 200 rows, best first
    falling = -make_monotone(-drawn)
    cut = cut_by_f1(falling)
    assert cut == pytest.approx(31.14, abs=2)
    assert expect_f1(falling)[cut] == pytest.approx(0.570984, abs=0.02)


def test_the_error_of_the_top_is_that_of_bins_of_equally_many_rows() -> None:
    draw = np.random.default_rng(4)
    p = draw.random(5000) ** 4
    relevant = draw.random(5000) < p / 2
    rows = sorted((one, bool(hit)) for one, hit in zip(p, relevant, strict=True) if one >= 0.05)
    share, error = len(rows) / 10, 0.0
    for part in np.array_split(np.array(rows, dtype=float), 10):
        error += abs(part[:, 0].mean() - part[:, 1].mean()) * len(part)
    assert share > 100
    assert measure_top_error(p, relevant) == pytest.approx(error / len(rows))
    assert measure_top_error(p, relevant) > 4 * measure_top_error(p, draw.random(5000) < p)
    assert measure_top_error(np.full(9, 0.01), np.zeros(9, dtype=bool)) == 0


def test_a_grade_changes_odds_by_its_ratio_and_probabilities_never_grow() -> None:
    before = np.array([0.5, 0.5, 0.2, 0.2, 0.1])
    found = weigh_by_grades(before, np.array([3.0, 1.5, np.nan, 0.0, 0.0]))
    middle = (GRADE_RATIOS[1] + GRADE_RATIOS[2]) / 2
    assert found == pytest.approx([4.0 / 5.0, middle / (middle + 1), 0.2, 0.24 / 4.24, 0.24 / 9.24])
    assert (np.diff(weigh_by_grades(before, np.array([0.0, 3.0, 0.0, 3.0, np.nan]))) <= 0).all()
    assert weigh_by_grades(before, np.full(5, np.nan)) == pytest.approx(before)
