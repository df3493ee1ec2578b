"""Tuning: every setting is measured as a run of it would be, and the choice never sees the topics it is judged on."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexing.build import Index
from indexing.errors import UserError
from runs.artifacts import NARRATIVE
from runs.config_file import read_config
from runs.evaluate import Evaluation, evaluate_files
from runs.measures import parse_measure
from runs.stages import run
from runs.tune import _cross_validated, tune

MEASURES = [parse_measure("nDCG@5"), parse_measure("R@5")]


@pytest.fixture
def config(index: Index, topics: Path, tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(
        f"run_id: r\nindex: {index.folder}\ntopics: {topics}\nout: {tmp_path}\ntrack: none\n"
        "retrieval: {depth: 6}\nfusion: {depth: 5}\n"
    )
    (tmp_path / "qrels.txt").write_text("1 0 bees 2\n1 0 beekeeping 1\n1 0 flowers 1\n2 0 volcano 2\n2 0 weather 1\n")
    return path


def test_every_setting_is_measured_as_its_run_would_be(config: Path, tmp_path: Path) -> None:
    qrels = tmp_path / "qrels.txt"
    tries = ["queries.facets=[clauses, sentences]", "fusion.k_narrative=[1, 60]", "queries.narrative_weight=[0, 2]"]
    found = tune(config, ["fusion.k=30"], qrels, tries, MEASURES, folds=2)
    assert len(found.trials) == 8
    for setting, trial in [(("queries.method=narrative",), found.whole), *found.trials.items()]:
        directory = run(read_config(config, ["fusion.k=30", *setting]))
        (expected,) = evaluate_files([directory / NARRATIVE], qrels, MEASURES)
        assert {name: values.tolist() for name, values in trial.values.items()} == {
            name: values.tolist() for name, values in expected.values.items()
        }, setting


def test_other_topics_are_searched_for_anew(config: Path, topics: Path, tmp_path: Path) -> None:
    swapped = tmp_path / "swapped.jsonl"
    swapped.write_text(topics.read_text().replace('"id": "1"', '"id": "3"').replace('"id": "2"', '"id": "1"'))
    found = tune(config, [], tmp_path / "qrels.txt", [f"topics=[{topics}, {swapped}]"], MEASURES, folds=2)
    right, wrong = (trial.values["nDCG@5"].tolist() for trial in found.trials.values())
    assert right[0] > wrong[0]


@given(st.integers(1, 5), st.integers(2, 12), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_a_fold_is_measured_with_what_is_best_on_the_others(trials: int, topics: int, folds: int, seed: int) -> None:
    table = np.random.default_rng(seed).random((trials, topics))
    names = tuple(map(str, range(topics)))
    evaluations = [Evaluation(str(i), names, {"m": row, "n": -row}) for i, row in enumerate(table)]
    if folds > topics:
        with pytest.raises(UserError, match=f"--folds {folds}: more than the {topics} judged topics"):
            _cross_validated(evaluations, folds)
        return
    found = _cross_validated(evaluations, folds)
    assert (found.values["n"] == -found.values["m"]).all(), "all measures of a topic come from one trial"
    best_elsewhere = {
        tuple(np.flatnonzero(fold)): int(np.argmax(table[:, ~fold].mean(axis=1)))
        for fold in (np.random.default_rng(0).permutation(topics) % folds == n for n in range(folds))
    }
    for fold, trial in best_elsewhere.items():
        assert found.values["m"][list(fold)].tolist() == table[trial, list(fold)].tolist()


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        ("fusion.k_narrative", "expected KEY="),
        ("fusion.k_narrative=10", "expected KEY="),
        ("fusion.k_narrative=[]", "expected KEY="),
        ("fusion.k_narrative=[1", "expected KEY="),
        ("fusion.k_narrative=[x]", "fusion.k_narrative: found 'x'"),
        ("fusion.deep=[1]", "fusion.deep: unknown key"),
    ],
)
def test_an_impossible_attempt_is_named(attempt: str, message: str, config: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        tune(config, [], tmp_path / "qrels.txt", [attempt], MEASURES)


def test_topics_must_be_judged(config: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("9 0 bees 1\n")
    with pytest.raises(UserError, match="none of its topics is judged"):
        tune(config, [], tmp_path / "other.txt", ["fusion.k=[1]"], MEASURES)
