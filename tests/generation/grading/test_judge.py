"""Judgments by repeats and by a cascade of prompts: the requests, the grades, and failures that stay failures."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.grading.umbrela import PROMPTS, JudgeSettings, choose_grade, judge_texts
from keystone.generation.llm.model import make_request_key
from keystone.generation.types import Failure, Request
from tests.support.models.scripted import Scripted

SYSTEMS = list(PROMPTS.values())


def judge(settings: JudgeSettings, grade: Callable[[Request], str]) -> tuple[list[list[int | Failure]], list[Request]]:
    model = Scripted(grade)
    return asyncio.run(judge_texts(model, "Why?", ["one", "two"], settings)), model.requests


@given(st.tuples(*[st.integers(0, 3)] * 3))
def test_the_third_prompt_is_asked_where_two_grades_differ_by_two(grades: tuple[int, int, int]) -> None:
    found, _ = judge(JudgeSettings(cascade=True), lambda request: f"{grades[SYSTEMS.index(request.messages[0][1])]}")
    assert found == [list(grades if abs(grades[0] - grades[1]) >= 2 else grades[:2])] * 2


def test_repeats_differ_by_their_seeds_and_have_replies_of_their_own() -> None:
    found, requests = judge(JudgeSettings(repeats=3), lambda request: f"{request.seed}")
    assert found == [[1, 2, 3]] * 2
    assert {request.temperature for request in requests} == {1.0}
    assert len({make_request_key("m", request) for request in requests}) == 6


def test_one_grade_is_the_request_of_a_run() -> None:
    found, requests = judge(JudgeSettings(), lambda _: "2")
    assert found == [[2], [2]]
    assert {(request.messages[0][1], request.temperature, request.seed) for request in requests} == {
        (SYSTEMS[0], 0.0, None)
    }


def test_a_failed_grade_stays_a_failure() -> None:
    found, _ = judge(JudgeSettings(cascade=True), lambda request: "no" if request.messages[0][1] == SYSTEMS[0] else "3")
    assert [[isinstance(value, Failure) for value in own] for own in found] == [[True, False]] * 2


@pytest.mark.parametrize(("grades", "grade"), [([2], 2), ([1, 2], 1), ([0, 3, 2], 2), ([0, 0, 3, 3], 0)])
def test_the_median_counts_and_of_two_the_lower_one(grades: list[int], grade: int) -> None:
    assert choose_grade(grades) == grade
