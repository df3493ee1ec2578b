"""Intervals over topics and judges: simulations with injected flips, and the probabilities behind the draws."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from keystone.indexing.io.reading import hash_file
from keystone.runs.evaluation.circular import JudgeRecord, write_record
from keystone.runs.evaluation.evaluate import evaluate_files
from keystone.runs.evaluation.judging.redraw import (
    Noise,
    draw_grades,
    draw_topics,
    find_bands,
    find_best_ranks,
    find_interval_over_judges,
    find_judge_intervals,
    measure_draws,
    tabulate_confusion,
    tabulate_repeats,
)
from keystone.runs.evaluation.measures import LEAST_AP, parse_measures
from keystone.runs.evaluation.resample import find_bootstrap_interval
from keystone.runs.trec.arrays import Ints
from keystone.runs.trec.types import make_qrels, make_run

TOPICS, DOCUMENTS, DRAWS, SIMULATIONS = 40, 10, 200, 300
FLIPS = np.array([0.15, 0.3])
"""How often the judge calls a document relevant that is not, and how often it misses a relevant one."""
RELEVANT = np.linspace(0.5, 0.1, DOCUMENTS)
"""The share of relevant documents at each rank, over all topics that could be asked."""
BANDS = find_bands(np.arange(1, DOCUMENTS + 1))
WEIGHTS = {"precision": np.full(DOCUMENTS, 1 / DOCUMENTS), "as in DCG": 1 / np.log2(np.arange(2, DOCUMENTS + 2))}
"""The weight of a relevant document at each rank, by measure."""


def draw_truth(rng: np.random.Generator) -> Ints:
    """Draw topics of unequal difficulty: int64[topics, documents]."""
    ease = 2 * rng.beta(4, 4, (TOPICS, 1))
    return (rng.random((TOPICS, DOCUMENTS)) < ease * RELEVANT).astype(np.int64)


def flip(truth: Ints, rng: np.random.Generator) -> Ints:
    return np.asarray(truth ^ (rng.random(truth.shape) < FLIPS[truth]))


def tabulate(
    truth: Ints, topics: Ints, repeats: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], Ints, Ints]:
    """The probabilities of each draw, the pattern of each document, and the judge's grade of each document.

    Without repeats, people have judged every second topic too.
    """
    if repeats:
        patterns = np.sum([flip(truth, rng) for _ in range(repeats)], axis=0)
        number = np.arange(repeats + 1)
        counts = np.zeros((TOPICS, BANDS.max() + 1, repeats + 1), dtype=np.int64)
        np.add.at(counts, (np.arange(TOPICS)[:, None], BANDS, patterns), 1)
        judged = np.asarray(patterns > repeats // 2, dtype=np.int64)
        return tabulate_repeats(np.stack([repeats - number, number], axis=1), counts, topics), patterns, judged
    judged = flip(truth, rng)
    counts = np.zeros((TOPICS, BANDS.max() + 1, 2, 2), dtype=np.int64)
    np.add.at(counts[::2], (np.arange(TOPICS // 2)[:, None], BANDS, judged[::2], truth[::2]), 1)
    return tabulate_confusion(counts, topics), judged, judged


def redraw(tables: NDArray[np.float64], patterns: Ints, rng: np.random.Generator) -> Ints:
    """Draw the grades of each document: int64[draws, topics, documents]."""
    rows, uniform = (BANDS * tables.shape[2] + patterns).reshape(-1), rng.random(patterns.size)
    drawn = [draw_grades(table.reshape(-1, 2), rows, uniform) for table in tables]
    return np.stack(drawn).reshape(len(tables), *patterns.shape)


def measure_coverage(repeats: int) -> dict[str, tuple[float, float]]:
    """Measure how often ordinary intervals, and those over judges, hold the true mean of each measure."""
    rng = np.random.default_rng(7)
    held = {name: np.zeros(2) for name in WEIGHTS}
    for _ in range(SIMULATIONS):
        topics = draw_topics(TOPICS, DRAWS, rng)
        tables, patterns, judged = tabulate(draw_truth(rng), topics, repeats, rng)
        grades = redraw(tables, patterns, rng)
        for name, weights in WEIGHTS.items():
            intervals = (
                find_bootstrap_interval(judged @ weights),
                find_interval_over_judges(grades @ weights, topics),
            )
            held[name] += [low <= RELEVANT @ weights <= high for low, high in intervals]
    return {name: (own[0] / SIMULATIONS, own[1] / SIMULATIONS) for name, own in held.items()}


def test_a_band_begins_at_each_power_of_two() -> None:
    assert find_bands(np.array([0, 1, 2, 3, 4, 7, 8, 1000])).tolist() == [0, 1, 2, 2, 3, 3, 4, 10]


def test_the_best_rank_in_any_run_counts_and_unfound_documents_have_rank_zero() -> None:
    qrels = make_qrels({"t1": {"a": 2, "b": 1, "c": 0}, "t2": {"a": 1}})
    runs = [
        make_run("one", {"t1": [("x", 3.0), ("b", 2.0), ("a", 1.0)]}),
        make_run("two", {"t1": [("a", 3.0), ("x", 2.0), ("y", 1.0), ("b", 0.5)]}),
    ]
    assert find_best_ranks(runs, qrels).tolist() == [1, 2, 0, 0]


@pytest.mark.parametrize(("low", "names"), [(0, ["gm_map(rel=3)"]), (1, ["gm_map(rel=3)", "P@1"])])
def test_a_draw_without_a_relevant_document_has_the_least_geometric_mean(low: int, names: list[str]) -> None:
    tables = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])
    noise = Noise(make_qrels({"1": {"a": 3}}), np.ones((2, 1), int), np.array([low, 3]), tables, np.zeros(1, int))
    first, *_ = measure_draws(make_run("r", {"1": [("a", 1.0)]}), noise, parse_measures(names)).values()
    assert np.exp(first[:, 0]) == pytest.approx([1, LEAST_AP])


@pytest.mark.slow
def test_the_geometric_mean_of_a_sure_judge_is_that_of_the_table(tmp_path: Path) -> None:
    qrels, run, measures = tmp_path / "judged", tmp_path / "run", parse_measures(["gm_map"])
    topics = range(1, 13)
    qrels.write_text("".join(f"{topic} m a 1\n{topic} m b 0\n" for topic in topics))
    rows = "".join(f"{topic} Q0 {'ab'[topic % 2]} 1 9 t\n{topic} Q0 {'ba'[topic % 2]} 2 8 t\n" for topic in topics)
    run.write_text(rows)
    grades = [[grade] * 3 for _ in topics for grade in (1, 0)]
    write_record(qrels, JudgeRecord("m", {}, "2026-01-01", hash_file(qrels), 2, 3, False, 0, [], grades))
    (noisy,) = find_judge_intervals([run], qrels, measures)
    (plain,) = evaluate_files([run], qrels, measures)
    found = noisy.means["gm_map"]
    assert plain.mean("gm_map") == pytest.approx(0.5**0.5)
    assert found.mean == pytest.approx(plain.mean("gm_map"), abs=0.1)
    assert 0 < found.low < found.mean < found.high <= 1


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [pytest.param(0, id="people judged half"), pytest.param(3, id="three repeats")])
def test_intervals_hold_the_truth_as_often_as_they_say_and_ordinary_ones_less_often(repeats: int) -> None:
    coverage = measure_coverage(repeats)
    assert all(0.93 <= over_judges <= 0.97 for _, over_judges in coverage.values())
    ordinary, over_judges = coverage["precision"]
    assert ordinary < over_judges - 0.02
