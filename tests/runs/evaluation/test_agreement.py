"""Tests of kappa and of the taus: known figures, twins of scikit-learn and SciPy, and properties."""

import numpy as np
import pytest
from scipy.stats import kendalltau
from sklearn.metrics import cohen_kappa_score  # type: ignore[import-untyped]

from keystone.runs.evaluation.agreement import (
    Weights,
    compute_kappa,
    compute_plain_tau,
    compute_tau,
    compute_tau_ap,
    count_labels,
    find_tau_interval,
)


def test_kappa_of_a_known_table_of_three_labels() -> None:
    counts = np.array([[1188, 798, 416], [240, 822, 595], [146, 486, 2002]])
    assert compute_kappa(counts) == pytest.approx(0.3936, abs=5e-5)
    assert np.trace(counts) / counts.sum() == pytest.approx(0.5994, abs=5e-5)


@pytest.mark.parametrize(("weights", "named"), [("none", None), ("linear", "linear"), ("quadratic", "quadratic")])
def test_kappa_equals_that_of_scikit_learn(weights: Weights, named: str | None) -> None:
    draw = np.random.default_rng(3)
    for _ in range(20):
        first = draw.integers(0, 4, 50)
        second = np.where(draw.random(50) < 0.5, first, draw.integers(0, 4, 50))
        expected = cohen_kappa_score(first, second, weights=named)
        assert count_labels(first, second).compute_kappa(weights) == pytest.approx(expected, abs=1e-12)


def test_kappa_is_missing_if_chance_alone_agrees_or_nothing_was_judged() -> None:
    assert np.isnan(compute_kappa(np.array([[5]])))
    assert np.isnan(compute_kappa(np.zeros((2, 2), dtype=np.int64)))


def test_tau_of_known_lists_with_ties() -> None:
    assert compute_tau([1, 2, 3, 4, 5, 5], [2, 1, 3, 3, 5, 4]) == pytest.approx(0.785714, abs=5e-7)


def test_tau_leaves_out_a_system_that_one_judge_could_not_measure() -> None:
    assert compute_tau([1, 2, np.nan, 3], [1, 3, 9, 2]) == pytest.approx(compute_tau([1, 2, 3], [1, 3, 2]))


def test_without_ties_plain_tau_is_that_of_scipy() -> None:
    draw = np.random.default_rng(5)
    for _ in range(20):
        first, second = draw.random(12), draw.random(12)
        assert compute_plain_tau(first, second) == pytest.approx(kendalltau(first, second).statistic, abs=1e-12)


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        pytest.param("BACED", 0.375, id="two swaps"),
        pytest.param("ABCED", 0.875, id="a swap at the end"),
        pytest.param("BACDE", 0.5, id="a swap at the top"),
        pytest.param("ABCDE", 1.0, id="the same order"),
        pytest.param("EDCBA", -1.0, id="the opposite order"),
    ],
)
def test_tau_ap_of_known_orders_against_abcde(predicted: str, expected: float) -> None:
    reference = [-"ABCDE".index(name) for name in "ABCDE"]
    own = [-predicted.index(name) for name in "ABCDE"]
    assert compute_tau_ap(reference, own) == pytest.approx(expected, abs=1e-12)


def test_tau_ap_with_ties_in_both_directions() -> None:
    first, second = [5, 4, 4, 2, 1], [4, 5, 3, 3, 2]
    both = (compute_tau_ap(first, second) + compute_tau_ap(second, first)) / 2
    assert both == pytest.approx(0.291667, abs=5e-7)


def test_equal_systems_have_no_tau_ap() -> None:
    assert np.isnan(compute_tau_ap([1, 1], [1, 1]))
    assert np.isnan(compute_tau_ap([1], [1]))


def test_the_interval_of_tau_holds_it_and_is_1_for_the_same_judge() -> None:
    draw = np.random.default_rng(8)
    first = np.linspace(0.2, 0.6, 6)[:, None] + draw.normal(0, 0.1, (6, 40))
    second = first + draw.normal(0, 0.1, (6, 40))
    low, high = find_tau_interval(first, second)
    assert low <= compute_tau(first.mean(axis=1), second.mean(axis=1)) <= high
    assert find_tau_interval(first, first) == pytest.approx((1, 1))
