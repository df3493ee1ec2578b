"""The selection of documents by grades that are incomplete."""

import numpy as np
import pytest

from keystone.fusion.parasol import Top
from keystone.generation.grading.grade import SELECTIONS, GradeSettings

NAN = np.nan


@pytest.mark.parametrize(
    ("grades", "selected"),
    [
        pytest.param([[0, 3, NAN]], [1], id="a document that is graded"),
        pytest.param([[NAN, NAN, NAN]], [0, 1], id="no grades: the first documents"),
        pytest.param([[0, NAN, NAN, NAN], [0, 0, NAN, NAN]], [2, 3], id="all grades are 0: those not graded"),
        pytest.param([[0, 0]], [], id="no document answers anything"),
        pytest.param([], [], id="no query"),
    ],
)
def test_a_set_by_coverage_is_not_empty_if_documents_have_no_grade(
    grades: list[list[float]], selected: list[int]
) -> None:
    known = np.array(grades or np.empty((0, 0)), dtype=np.float64)
    none = np.array([], dtype=np.int64)
    top = Top(none, none.astype(np.float64), known, ~np.isnan(known))
    texts = ["text"] * known.shape[1]
    found, scores = SELECTIONS["coverage"].choose(top, texts, GradeSettings(documents=2))
    assert found == selected
    assert scores == sorted(scores, reverse=True)
