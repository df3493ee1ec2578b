"""Measures of the submitted rows as a set, and the F1 at the best cut of a ranking."""

from pathlib import Path

import numpy as np
import pytest

from keystone.runs.evaluation.definitions import GradedTopic, compute_best_f1
from keystone.runs.evaluation.evaluate import evaluate_files
from keystone.runs.evaluation.measures import parse_measure, set_relevant_grade


@pytest.mark.parametrize(
    ("judged", "ranked", "value"),
    [
        pytest.param([1, 1, 0], [1, 0, 1, -1], 0.8, id="after the third row"),
        pytest.param([1, 1], [1, -1, -1, -1], 2 / 3, id="after the first row"),
        pytest.param([1], [], 0.0, id="no row"),
        pytest.param([0], [0, -1], 0.0, id="nothing relevant"),
    ],
)
def test_the_best_cut_counts(judged: list[int], ranked: list[int], value: float) -> None:
    topic = GradedTopic(np.array(judged, dtype=np.int64), np.array(ranked, dtype=np.int64), 1)
    assert compute_best_f1(topic) == pytest.approx(value)


def test_a_grade_of_the_development_judgments_is_relevant_at_its_cut_and_no_row_scores_0(tmp_path: Path) -> None:
    """Fixture 10 of the track's measures: a line of the judgments of 2025, and a topic without a submitted row."""
    qrels, run = tmp_path / "qrels", tmp_path / "run"
    qrels.write_text("14 0 shard_04439_8336 4\n14 0 shard_00001_1 1\n31 0 shard_00001_2 2\n")
    run.write_text("14 Q0 shard_00001_1 1 2.0 r\n14 Q0 shard_04439_8336 2 1.0 r\n")
    measures = set_relevant_grade([parse_measure(name) for name in ("SetP", "SetR", "SetF")], 2)
    (found,) = evaluate_files([run], qrels, measures)
    assert found.topics == ("14", "31")
    assert [values.tolist() for values in found.values.values()] == [
        pytest.approx([0.5, 0.0]), pytest.approx([1.0, 0.0]), pytest.approx([2 / 3, 0.0])]  # fmt: skip
