"""Run and qrels files: what is written is read the same by every tool, what is broken is named by its line."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexing.errors import UserError
from runs.trec import Run, in_trec_eval_order, read_qrels, read_run, strictly_decreasing, write_run

SCORES = st.lists(
    st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120)
    | st.sampled_from([0.0, -0.0, 1.0, 1 / 61, 1e-40]),
    max_size=30,
)


@given(SCORES)
def test_scores_strictly_decrease_in_float32_and_move_as_little_as_they_can(scores: list[float]) -> None:
    ordered = sorted(scores, reverse=True)
    found = strictly_decreasing(ordered)
    assert np.all(found[1:] < found[:-1])
    expected: list[np.float32] = []
    for score in ordered:
        below = np.nextafter(expected[-1], np.float32(-np.inf)) if expected else np.float32(np.inf)
        expected.append(min(np.float32(score), below))
    assert found.tolist() == [float(score) for score in expected]


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1e300])
def test_a_score_that_float32_cannot_hold_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        strictly_decreasing([score])


IDS = st.lists(st.text(st.sampled_from("aZ0_#.é"), min_size=1, max_size=4), unique=True, max_size=20)


@given(IDS, SCORES)
def test_trec_eval_finds_the_order_that_was_written(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str], scores: list[float]
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.trec"
    hits = list(zip(ids, sorted(scores, reverse=True), strict=False))
    write_run(path, Run("tag", {"q": hits}))
    found = read_run(path).hits.get("q", [])
    assert in_trec_eval_order(found) == [doc_id for doc_id, _ in hits]
    as_double = sorted(found, key=lambda hit: (hit[1], hit[0]), reverse=True)
    assert [doc_id for doc_id, _ in as_double] == [doc_id for doc_id, _ in hits]


def test_a_written_run_golden(tmp_path: Path) -> None:
    write_run(tmp_path / "run", Run("tag", {"14": [("b", 0.5), ("a", 0.5), ("c", 0.25)], "2": []}), depth=2)
    assert (tmp_path / "run").read_text() == "14 Q0 b 1 0.5 tag\n14 Q0 a 2 0.49999997 tag\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("1 Q0 d 1 0.5", "expected 6 columns, found 5", id="a column short"),
        pytest.param("1 Q0 d 1 0.5 my tag", "expected 6 columns, found 7", id="a tag with a space"),
        pytest.param("", "expected 6 columns, found 0", id="a blank line"),
        pytest.param("1 Q0 d 1 high tag", "expected a finite number, found 'high'", id="a score in words"),
        pytest.param("1 Q0 d 1 nan tag", "expected a finite number, found 'nan'", id="not a number"),
        pytest.param("1 Q0 a 2 0.1 tag", "document a occurs more than once for 1", id="a repeated document"),
    ],
)
def test_a_broken_run_names_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "x.run"
    path.write_text(f"1 Q0 a 1 0.9 tag\n{line}\n1 Q0 z 3 0.1 tag\n")
    with pytest.raises(UserError, match=rf"x\.run:2: .*{message}"):
        read_run(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("1 0 a", "expected 4 columns, found 3", id="a column short"),
        pytest.param("1 0 a 1.5", "expected a whole number, found '1.5'", id="a broken grade"),
        pytest.param("1 0 d 2", "document d has two grades for 1", id="two grades"),
    ],
)
def test_broken_qrels_name_their_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "x.qrels"
    path.write_text(f"1 0 d 1\n{line}\n")
    with pytest.raises(UserError, match=rf"x\.qrels:2: .*{message}"):
        read_qrels(path)


@pytest.mark.parametrize("second", ["0", "1", "Q0"])
def test_the_second_column_of_qrels_is_not_looked_at(tmp_path: Path, second: str) -> None:
    path = tmp_path / "qrels"
    path.write_text(f"007 {second} msmarco_v2.1_doc_0_1#2_3\t4\n7 {second} d -1\n")
    assert read_qrels(path) == {"007": {"msmarco_v2.1_doc_0_1#2_3": 4}, "7": {"d": -1}}
