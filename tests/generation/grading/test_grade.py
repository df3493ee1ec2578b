"""The selection of documents by grades, and grades beyond the pool: their limit, their end, and neighbours."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.fusion.parasol import Floats, Top, extend_top, parasol
from keystone.generation.grading.grade import (
    GROUP_DOCUMENTS,
    SELECTIONS,
    Beyond,
    GradeSettings,
    choose_group,
    grade_deeper,
)

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


GRADES = st.sampled_from([0.0, 1.0, 2.0, 3.0, float("nan")])


def go(
    truth: Floats, pool: Sequence[int], k: int, most: int, near: dict[int, list[int]]
) -> tuple[Top, list[list[int]]]:
    """Grade beyond a pool, with the columns of `truth` as the rows of a ranking; returns the groups in order."""
    groups, shown = list[list[int]](), list(pool)

    async def find_neighbours(rows: Sequence[int]) -> list[list[int]]:
        return [near.get(row, []) for row in rows]

    async def grade(rows: Sequence[int]) -> Floats:
        groups.append(list(rows))
        shown.extend(rows)
        return truth[:, list(rows)]

    async def read(_rows: Sequence[int]) -> Any:
        raise AssertionError("grading reads documents itself")

    nothing = np.zeros((len(truth), 0))
    empty = Top(np.zeros(0, dtype=np.int64), np.zeros(0), nothing, nothing.astype(np.bool_))
    beyond = Beyond(range(truth.shape[1]), find_neighbours, read, most)
    return asyncio.run(grade_deeper(extend_top(empty, truth[:, list(pool)], k), shown, k, beyond, grade)), groups


TABLES = st.tuples(st.integers(1, 3), st.integers(1, 80)).flatmap(
    lambda shape: st.lists(
        st.lists(GRADES, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]
    ).map(np.array)
)


@pytest.mark.slow
@given(TABLES, st.integers(1, 30), st.integers(0, 70), st.data())
def test_no_more_than_the_limit_is_graded_and_no_document_twice(
    truth: Floats, k: int, most: int, data: st.DataObject
) -> None:
    rows = st.integers(0, truth.shape[1] - 1)
    pool = data.draw(st.lists(rows, unique=True, max_size=20))
    near = data.draw(st.dictionaries(rows, st.lists(rows, max_size=4), max_size=9))
    top, groups = go(truth, pool, k, most, near)
    further = [row for group in groups for row in group]
    assert len(further) <= most
    assert max(map(len, groups), default=0) <= GROUP_DOCUMENTS
    graded = [*pool, *further]
    assert len(set(graded)) == len(graded)
    scores = parasol(truth[:, graded])
    assert top.documents.tolist() == sorted(range(len(graded)), key=lambda place: (-scores[place], place))[:k]


@pytest.mark.slow
@given(TABLES, st.integers(1, 30), st.integers(1, 70))
def test_every_group_but_the_last_pays(truth: Floats, k: int, most: int) -> None:
    pool = list(range(min(5, truth.shape[1])))
    _, groups = go(truth, pool, k, most, {})
    graded = list(pool)
    for number, group in enumerate(groups):
        graded += group
        scores = parasol(truth[:, graded])
        first = sorted(range(len(graded)), key=lambda place: (-scores[place], place))[:k]
        pays = any(graded[place] in group and scores[place] > 0 for place in first)
        assert pays or number == len(groups) - 1
    if groups and pays:
        assert len(graded) - len(pool) == most or len(graded) == truth.shape[1], "it ended although the last one paid"


def test_a_good_document_brings_its_neighbours_between_those_of_the_ranking() -> None:
    truth = np.array([[3.0, 1.0] + [0.0] * 98])
    _, groups = go(truth, [0, 1], 5, 30, {0: [70, 71, 72], 1: [80]})
    assert groups == [[70, 2, 71, 3, 72, 4, 5, 6, 7, 8]]


def test_neighbours_of_neighbours_follow_while_groups_pay() -> None:
    truth = np.zeros((1, 100))
    truth[0, [0, 70, 90]] = 3
    _, groups = go(truth, [0], 10, 100, {0: [70], 70: [90], 90: [95]})
    assert [group[0] for group in groups] == [70, 90, 95]


@pytest.mark.parametrize("most", [0, 3, 10, 11, 200])
def test_ranking_is_graded_to_the_limit_while_every_group_pays(most: int) -> None:
    _, groups = go(np.full((2, 100), 2.0), [], 100, most, {})
    assert [row for group in groups for row in group] == list(range(min(most, 100)))


def test_groups_leave_out_graded_rows_and_take_turns() -> None:
    assert choose_group([1, 2], [2, 9, 3], [1, 3, 4, 5], 4) == [9, 3, 4, 5]
    assert choose_group([1], [], [1], 4) == []
