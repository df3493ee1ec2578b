"""The F1 at the best cut of a ranking."""

import numpy as np
import pytest

from keystone.runs.evaluation.definitions import GradedTopic, compute_best_f1


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
