"""The keystone ranking: it keeps the order of the selection for any scores and rows."""

import numpy as np

from keystone.generation.grading.grade import GradedTopic
from keystone.retrieval.types import Rankings, offsets_of
from keystone.runs.pipeline.grading.grade_files import make_keystone_rankings


def graded(rows: list[int], selected: list[int], scores: list[float]) -> GradedTopic:
    return GradedTopic("t", [], rows, [[] for _ in rows], np.zeros((0, len(rows))), 0, selected, scores, [])


def test_equal_scores_keep_the_order_of_the_selection_above_the_rest() -> None:
    """Parasol breaks ties by the candidates' order, in which rows do not ascend."""
    narrative = Rankings(("t",), offsets_of([4]), np.array([9, 7, 3, 5], np.int32), np.array([4.0, 3.0, 2.0, 1.0]))
    topic = graded([9, 7, 3], [0, 1, 2], [0.5, 0.5, 0.0])
    found = make_keystone_rankings([topic], narrative, alone=False)
    assert found.docs.tolist() == [9, 7, 3, 5]
    assert found.scores.tolist() == [1.5, np.nextafter(np.float32(1.5), np.float32(0)), 1.0, 0.5]
    assert make_keystone_rankings([topic], narrative, alone=True).docs.tolist() == [9, 7, 3]
