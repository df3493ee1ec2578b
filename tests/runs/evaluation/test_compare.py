"""Comparisons of runs: randomisation tests, Holm's correction, effect sizes, intervals."""

import itertools
import math
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from keystone.runs.evaluation.compare import (
    build_report,
    caution_about_all_pairs,
    compare_all_pairs,
    compare_runs,
    correct_by_holm,
    find_letters,
    join_cautions,
)
from keystone.runs.evaluation.evaluate import Evaluation, evaluate_files
from keystone.runs.evaluation.leaderboard import split_variance
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.evaluation.resample import find_bootstrap_interval, run_randomisation_test
from keystone.runs.report.tables import format_csv, format_latex, format_markdown
from tests.support.runs.command_line import keystone

DIFFERENCES = st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.1, 0.25, 0.3, 1.0]), min_size=2, max_size=9)


def enumerate_p(differences: list[float]) -> float:
    """The plain twin: the mean of every assignment of signs."""
    sums = [sum(map(math.prod, zip(signs, differences, strict=True)))
            for signs in itertools.product((1, -1), repeat=len(differences))]  # fmt: skip
    return statistics.mean(abs(total) >= abs(sum(differences)) - 1e-9 for total in sums)


@settings(deadline=None)
@given(DIFFERENCES)
def test_the_randomisation_test_of_few_topics_is_exact(differences: list[float]) -> None:
    assert run_randomisation_test(np.array(differences)) == pytest.approx(enumerate_p(differences))


def test_the_randomisation_test_of_many_topics_is_near_the_exact_one_and_the_t_test() -> None:
    rng = np.random.default_rng(1)
    sixteen = rng.normal(0.4, 1, 16)
    random = np.append(sixteen, 1e-12)  # one topic more than the exact test takes
    assert run_randomisation_test(random) == pytest.approx(run_randomisation_test(sixteen), abs=0.005)
    differences = rng.normal(0.2, 1, 200)
    found = compare_runs([Evaluation(n, tuple(map(str, range(200))), {"m": v})
                          for n, v in (("a", np.zeros(200)), ("b", differences))])[0]["m"]  # fmt: skip
    assert found.p_randomisation == pytest.approx(found.p_t, abs=0.005)
    assert found.p_randomisation == run_randomisation_test(differences), "the seed is fixed"


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        pytest.param([], math.nan, id="no topic"),
        pytest.param([0.5, math.nan], math.nan, id="one topic"),
        pytest.param([0.0, 0.0], 1.0, id="equal runs"),
        pytest.param([0.5, 0.5, 0.5, math.nan], 0.25, id="a constant difference"),
    ],
)
def test_the_randomisation_test_of_edge_cases(differences: list[float], p: float) -> None:
    assert run_randomisation_test(np.array(differences)) == pytest.approx(p, nan_ok=True)


def test_a_true_null_hypothesis_is_rejected_as_often_as_it_should_be() -> None:
    rng = np.random.default_rng(2)
    rejected = statistics.mean(run_randomisation_test(rng.normal(0, 1, 12)) < 0.05 for _ in range(2000))
    assert rejected == pytest.approx(0.05, abs=0.015)


@pytest.mark.slow
def test_bootstrap_intervals_hold_the_mean_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(3)
    intervals = [find_bootstrap_interval(rng.beta(2, 3, 60)) for _ in range(400)]
    assert statistics.mean(low <= 0.4 <= high for low, high in intervals) == pytest.approx(0.95, abs=0.03)
    assert all(map(math.isnan, find_bootstrap_interval(np.array([0.5, math.nan]))))


@pytest.mark.parametrize(
    ("p_values", "corrected"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.02, math.nan, 0.01], [0.02, math.nan, 0.02]),
    ],
)
def test_the_correction_by_holm(p_values: list[float], corrected: list[float]) -> None:
    assert correct_by_holm(p_values) == pytest.approx(corrected, nan_ok=True)


def make_evaluations() -> list[Evaluation]:
    topics = tuple(map(str, range(8)))
    first = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    better = first + np.array([0.1, 0.2, 0.1, 0.1, 0.1, 0.1, 0.2, 0.1])
    return [Evaluation(name, topics, {"nDCG@10": values, "P_5%": np.full(8, np.nan)})
            for name, values in (("a_1", first), ("b|2", better), ("c", first))]  # fmt: skip


def test_a_comparison_has_mean_interval_effect_and_corrected_tests() -> None:
    second, third = (found["nDCG@10"] for found in compare_runs(make_evaluations()))
    differences = [0.1, 0.2, 0.1, 0.1, 0.1, 0.1, 0.2, 0.1]
    assert second.mean == pytest.approx(0.125)
    assert second.effect == pytest.approx(statistics.mean(differences) / statistics.stdev(differences))
    assert second.p_randomisation == pytest.approx(2 * 2 / 2**8)  # all signs alike, for two runs
    assert 0.09 < second.low < 0.125 < second.high < 0.21
    assert (third.mean, third.effect, third.p_t, third.p_randomisation) == (0, 0, 1, 1)
    report = orjson.loads(orjson.dumps(build_report(make_evaluations())))
    assert report["differences"][0]["measures"]["nDCG@10"]["p_t"] == pytest.approx(second.p_t)
    assert report["runs"][0]["interval"]["P_5%"] == [None, None]


def test_a_caution_of_each_run_is_listed_once() -> None:
    said = {"a": ("missing: 2 of 9", "extra: 1 of 3"), "b": ("extra: 1 of 3",), "c": ("extra: 1 of 3",)}
    runs = [
        replace(make_evaluations()[0], cautions=("of all", *(f"{name}.trec: {one}" for one in own)))
        for name, own in said.items()
    ]
    assert join_cautions(runs) == ["of all", "a.trec: missing: 2 of 9", "each of 3 runs: extra: 1 of 3"]
    assert join_cautions(runs[1:]) == ["of all", "b.trec: extra: 1 of 3", "c.trec: extra: 1 of 3"]
    of_three = ["of all", "a.trec: missing: 2 of 9", *(f"{name}.trec: extra: 1 of 3" for name in said)]
    assert join_cautions([*runs, replace(runs[0], cautions=())]) == of_three
    many = [replace(runs[1], name=name, cautions=(f"{name}.trec: extra: 1 of 3",)) for name in "abcdefghi"]
    odd = [replace(runs[1], name=name, cautions=()) for name in "yz"]
    assert join_cautions([*many, *odd]) == ["each of 11 runs but y, z: extra: 1 of 3"]


def test_a_run_without_a_value_takes_no_topic_from_the_test_of_other_pairs() -> None:
    draw, topics = np.random.default_rng(4), tuple(map(str, range(8)))
    whole = [Evaluation(name, topics, {"A": draw.random(8) + place}) for place, name in enumerate("abc")]
    none = Evaluation("none", topics, {"A": np.full(8, np.nan)})
    pairs = compare_all_pairs([*whole, none], "A")
    assert [one for one in pairs if one.second != "none"] == compare_all_pairs(whole, "A")
    assert find_letters([*"abc", "none"], pairs) == find_letters("abc", compare_all_pairs(whole, "A")) | {"none": ""}
    assert split_variance([*whole, none], "A") == split_variance(whole, "A")
    assert caution_about_all_pairs([*whole, none], "A") == []
    whole[0].values["A"][0] = whole[1].values["A"][1] = np.nan
    first, other, last = compare_all_pairs(whole, "A")
    own = [one.values["A"][[0, *range(2, 8)]] for one in whole[1:]]
    assert (first.losses, other.losses, last.losses) == (6, 7, 7)
    assert last.difference == pytest.approx(own[0].mean() - own[1].mean())
    assert last.p_t == pytest.approx(ttest_rel(*own).pvalue)
    (caution,) = caution_about_all_pairs(whole, "A")
    assert caution == "Tukey's test counts 6 of 8 topics, those of which all runs have A"


def test_tables_are_those_of_papers() -> None:
    assert format_markdown(make_evaluations()).splitlines() == [
        r"| run | nDCG@10 | P\_5% |",
        "| --- | ---: | ---: |",
        r"| a\_1 | 0.4500 | - |",
        r"| b\|2 | **0.5750**† | - |",
        "| c | 0.4500 | - |",
        "",
        "† p < 0.05 against a_1 (paired randomisation test, corrected by Holm for 2 runs)",
    ]
    assert format_latex(make_evaluations()[:2]).splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"run & nDCG@10 & P\_5\% \\",
        r"\midrule",
        r"a\_1 & 0.4500 & - \\",
        r"b|2 & \textbf{0.5750}$^{\dagger}$ & - \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"% $^{\dagger}$ p < 0.05 against a_1 (paired randomisation test)",
    ]
    head, first, _, second, *_ = format_csv(make_evaluations()).splitlines()
    assert head.split(",")[:6] == ["run", "measure", "topics", "circular_rows", "mean", "low"]
    assert first.startswith("a_1,nDCG@10,8,0,0.45,")
    assert first.endswith(",,,,,,,false")
    assert float(second.split(",")[7]) == pytest.approx(0.125)


def write_rows(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


@pytest.mark.slow
def test_the_command_prints_differences_and_tables(tmp_path: Path) -> None:
    qrels = write_rows(tmp_path / "qrels", *(f"{t} 0 d{t} 1" for t in range(9)))
    good = write_rows(tmp_path / "good", *(f"{t} Q0 d{t} 1 0.9 t" for t in range(9)))
    poor = write_rows(tmp_path / "poor", *(f"{t} Q0 {'d' if t < 2 else 'x'}{t} 1 0.9 t" for t in range(9)))
    asked: list[str | Path] = ["evaluate", poor, good, "--qrels", qrels, "-m", "MRR", "--quiet"]
    lines = keystone(*asked).stdout.splitlines()
    assert lines[0].split() == ["run", "MRR", "judged@10"]
    assert lines[4] == f"{good} against {poor}:"
    assert lines[6].split() == [
        "MRR", "+0.7778", "+0.4444", "to", "+1.0000", "+1.76", "<", ".001", "0.016",
    ]  # fmt: skip
    assert lines[-1] == "The tests are paired and two-sided."
    (found,) = (evaluation.mean("MRR") for evaluation in evaluate_files([poor], qrels, [parse_measure("MRR")]))
    assert f"| {found:.4f} |" in keystone(*asked, "--format", "markdown").stdout
    assert keystone(*asked, "--format", "latex").stdout.startswith(r"\begin{tabular}{lrr}")
    condensed = keystone(*asked, "--format", "csv", "--condensed").stdout.splitlines()
    assert condensed[1].split(",")[1:5] == ["MRR", "9", "0", repr(found)]
