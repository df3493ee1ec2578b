"""Wins with intervals: Wilson's numbers, and their bounds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from keystone.runs.evaluation.answers.evaluate_answers import (
    Comparison,
    compute_first_slot_rate,
    compute_wilson_interval,
    report_comparison,
)


@given(st.integers(1, 10_000).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_the_interval_equals_that_of_scipy(counts: tuple[int, int]) -> None:
    expected = binomtest(*counts).proportion_ci(method="wilson")
    assert compute_wilson_interval(*counts) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_interval_of_no_trial_is_everything() -> None:
    assert compute_wilson_interval(0, 0) == (0, 1)


def test_the_interval_of_the_papers_win_rate() -> None:
    """DiscoRAG, table 4: 68 wins of 111."""
    low, high = compute_wilson_interval(68, 111)
    assert (round(low, 2), round(high, 2)) == (0.52, 0.70)


def test_the_first_slot_rate_leaves_out_ties() -> None:
    assert compute_first_slot_rate(["A", "B", "tie", "A"]) == pytest.approx(2 / 3)
    assert math.isnan(compute_first_slot_rate(["tie"]))


def test_a_comparison_says_its_counts_and_who_was_not_judged() -> None:
    outcomes = {"1": 1.0, "2": 0.5, "3": 0.0, "4": 1.0}
    comparison = Comparison("a", "b", outcomes, 0.5, ("5",))
    assert str(comparison) == (
        "a against b: 2 wins (15.0% to 85.0%), 1 tie (4.6% to 69.9%), 1 loss (4.6% to 69.9%) of 4 topics; "
        "first slot 50.0%; no verdict on 1 topic, such as 5"
    )
    assert report_comparison(comparison)["counts"] == {"win": 2, "tie": 1, "loss": 1}
    assert "0 topics; first slot -" in str(Comparison("a", "b", {}, math.nan))
