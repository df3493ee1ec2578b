"""UMBRELA: requests that share their beginnings, replies with one reading, and failed grades that stay absent.

Also judgments by repeats and by a cascade of prompts.
"""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.grading.umbrela import (
    PROMPTS,
    GradeForm,
    JudgeSettings,
    Mode,
    Pair,
    choose_grade,
    compute_expected_grade,
    grade_pairs,
    group_pairs,
    judge_texts,
    read_grades,
    request_grades,
)
from keystone.generation.llm.model import make_request_key
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unusable
from tests.support.models.scripted import Said, Scripted

QUERIES = ["How do bees dance?", "What do wasps eat?", "Why is honey sweet?"]
PAIRS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=18, unique=True)
MODES: list[Mode] = ["pointwise", "grid"]


def _passage(document: int, _queries: Sequence[int]) -> str:
    return f"Passage of document {document}."


def _truth(query: int, document: int) -> int:
    return (query * 7 + document * 5) % 4


def _judge(request: Request) -> Said:
    """Grade as `_truth` does. The document and the queries are read from the prompt."""
    text = request.messages[1][1]
    document = int(text.split("Passage of document ")[1].split(".")[0])
    asked = [QUERIES.index(query) for query in QUERIES if query in text]
    asked.sort(key=lambda query: text.index(QUERIES[query]))
    names = ["grade"] if "Queries:" not in text else [str(i + 1) for i in range(len(asked))]
    return json.dumps({name: _truth(query, document) for name, query in zip(names, asked, strict=True)})


def _graded(say: Callable[[Request], Said], pairs: Sequence[Pair], mode: Mode) -> dict[Pair, float | Failure]:
    return asyncio.run(grade_pairs(Scripted(say), QUERIES, _passage, pairs, GradeForm(mode)))


@given(PAIRS, st.sampled_from(MODES))
def test_every_pair_gets_its_own_grade(pairs: list[Pair], mode: Mode) -> None:
    grades = _graded(_judge, pairs, mode)
    assert list(grades.items()) == [(pair, float(_truth(*pair))) for pair in pairs]


@pytest.mark.parametrize(("mode", "calls"), [("pointwise", 6), ("grid", 2)])
def test_a_grid_asks_once_a_document(mode: Mode, calls: int) -> None:
    model = Scripted(_judge)
    pairs = [(query, document) for query in range(3) for document in (4, 1)]
    asyncio.run(grade_pairs(model, QUERIES, _passage, pairs, GradeForm(mode)))
    assert len(model.requests) == calls
    assert {request.purpose for request in model.requests} == {"umbrela"}


@given(PAIRS, st.sampled_from(MODES))
def test_requests_about_a_document_stand_together_and_none_is_lost(pairs: list[Pair], mode: Mode) -> None:
    groups = group_pairs(pairs, mode)
    assert sorted((query, document) for document, chosen in groups for query in chosen) == sorted(pairs)
    assert [document for document, _ in groupby(groups, key=lambda group: group[0])] == list(
        dict.fromkeys(document for _, document in pairs)
    )


@pytest.mark.parametrize("mode", MODES)
def test_prompts_of_one_passage_differ_only_after_it(mode: Mode) -> None:
    one, other = (request_grades([query], "A passage.", mode).messages for query in QUERIES[:2])
    assert one[0] == other[0]
    end = one[1][1].index("</document>")
    assert one[1][1][:end] == other[1][1][:end]
    assert one[1][1].index(QUERIES[0]) > end


def test_a_passage_is_made_for_its_queries() -> None:
    asked: list[tuple[int, tuple[int, ...]]] = []

    def passages(document: int, queries: Sequence[int]) -> str:
        asked.append((document, tuple(queries)))
        return _passage(document, queries)

    for mode in MODES:
        asyncio.run(grade_pairs(Scripted(_judge), QUERIES, passages, [(2, 5), (0, 5), (1, 3)], GradeForm(mode)))
    assert asked == [(5, (0,)), (5, (2,)), (3, (1,)), (5, (0, 2)), (3, (1,))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("said", [Failure("gone"), "I cannot say.", '{"grade": 4, "1": 4, "2": 4}'])
def test_a_failed_grade_is_absent_and_says_why(said: Said, mode: Mode) -> None:
    def say(request: Request) -> Said:
        return said if "document 1." in request.messages[1][1] else _judge(request)

    grades = _graded(say, [(0, 1), (1, 1), (0, 2)], mode)
    assert grades.pop((0, 2)) == _truth(0, 2)
    assert set(grades) == {(0, 1), (1, 1)}
    assert all(isinstance(grade, Failure) and grade.reason for grade in grades.values())


def test_a_refused_reply_is_repaired_once() -> None:
    def say(request: Request) -> Said:
        return "Hm." if len(request.messages) == 2 else '{"grade": 2}'

    assert _graded(say, [(0, 1)], "pointwise") == {(0, 1): 2.0}


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        pytest.param('{"grade": 2}', 2, id="the expected form"),
        pytest.param('{"grade": "2"}', 2, id="the digit as a string"),
        pytest.param('```json\n{"grade": 0}\n```', 0, id="in a fence"),
        pytest.param('Sure: {"grade": 3}. Anything else?', 3, id="in prose"),
        pytest.param('{"reason": "it says {\\"grade\\": 3}", "grade": 1}', 1, id="an object that quotes another"),
        pytest.param('{a, b} {"grade": 1}', 1, id="braces of prose"),
        pytest.param('{"grade": 1} {"grade": 1}', 1, id="twice the same"),
        pytest.param("2", 2, id="the digit alone"),
        pytest.param("##final score: 2", 2, id="a final score"),
        pytest.param("Final_Score: **0**", 0, id="a final score in bold"),
        pytest.param("", None, id="nothing"),
        pytest.param("4", None, id="another digit"),
        pytest.param('{"grade": 4}', None, id="no grade"),
        pytest.param('{"grade": -1}', None, id="a negative one"),
        pytest.param('{"grade": 2.5}', None, id="a fraction"),
        pytest.param('{"grade": true}', None, id="a truth value"),
        pytest.param('{"grade": null}', None, id="null"),
        pytest.param('{"Grade": 1, "rate": 2}', None, id="other keys"),
        pytest.param("[2]", None, id="a list"),
        pytest.param('{"grade": 3} no, {"grade": 0}', None, id="two grades"),
        pytest.param('{"grade": 3, "grade": 0}', None, id="a repeated key"),
        pytest.param('{"why": {"grade": 3}, "grade": 0', None, id="broken, another within"),
        pytest.param('{"grade": 4} final score: 3', None, id="prose beside JSON"),
        pytest.param("final score: 3, or rather final score: 1", None, id="two final scores"),
        pytest.param("final score: 30", None, id="a longer number"),
        pytest.param("final score: 2.5", None, id="a fraction in prose"),
        pytest.param("I would give it a 2 or so", None, id="a digit in prose"),
        pytest.param('{"a":' * 5000, None, id="endless nesting"),
        pytest.param("{" * 5000, None, id="endless braces"),
    ],
)
def test_a_reply_has_one_reading_or_none(text: str, grade: int | None) -> None:
    if grade is None:
        with pytest.raises(Unusable):
            read_grades(Reply(text), ["grade"])
    else:
        assert read_grades(Reply(text), ["grade"]) == [grade]


def test_a_cut_reply_is_read_only_if_it_is_whole() -> None:
    assert read_grades(Reply('{"grade": 2}  \n\n ', "length"), ["grade"]) == [2]
    for text in ('{"grade": 2} but', '{"grade": 2', "final score: 2"):
        with pytest.raises(Unusable):
            read_grades(Reply(text, "length"), ["grade"])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(0, 11))
def test_a_grid_needs_all_its_grades(grades: list[int], missing: int) -> None:
    names = [str(i + 1) for i in range(len(grades))]
    whole = dict(zip(names, grades, strict=True))
    assert read_grades(Reply(json.dumps(whole)), names) == grades
    del whole[names[missing % len(names)]]
    with pytest.raises(Unusable):
        read_grades(Reply(json.dumps(whole)), names)


@given(st.text(st.sampled_from('{}":grade0123 ,final scor[]') | st.characters(codec="utf-8")))
def test_any_text_is_a_grade_or_unusable(text: str) -> None:
    for reply in (Reply(text), Reply(text, "length"), Reply(text, logprobs=({text[:1]: 0.0},))):
        try:
            (grade,) = read_grades(reply, ["grade"], expected=True)
        except Unusable:
            continue
        assert 0 <= grade <= 3


def _tokens(*texts: str, **alternatives: dict[str, float]) -> tuple[dict[str, float], ...]:
    return tuple(alternatives.get(f"t{i}", {text: 0.0, "never": -9999.0}) for i, text in enumerate(texts))


HALF = math.log(0.5)


@pytest.mark.parametrize(
    ("logprobs", "expected"),
    [
        pytest.param((), 2.0, id="no probabilities"),
        pytest.param(_tokens('{"', "grade", '": ', "2", "}"), 2.0, id="certain"),
        pytest.param(_tokens('{"', "grade", '": ', "2", "}", t3={"2": HALF, "3": HALF}), 2.5, id="between two"),
        pytest.param(_tokens('{"', "grade", '":', " 2}", t3={" 2}": -0.1, " 0}": -0.1, "2": -3.0}), 1.0, id="joined"),
        pytest.param(_tokens('{"', "grade", '": ', "2", "}", t3={"2": -0.9, "x": -0.1}), 2.0, id="others do not count"),
        pytest.param(_tokens('{"', "grade", '": ', "2", "}", t3={"2": -math.inf}), 2.0, id="impossible"),
        pytest.param(_tokens("{", "rate", '": ', "2", "}"), 2.0, id="tokens of another text"),
        pytest.param(_tokens('{"', "gra"), 2.0, id="too few tokens"),
    ],
)
def test_expected_grades_are_means_over_the_four(logprobs: tuple[dict[str, float], ...], expected: float) -> None:
    reply = Reply('{"grade": 2}', logprobs=logprobs)
    assert compute_expected_grade(reply, "grade", 2) == pytest.approx(expected)
    assert read_grades(reply, ["grade"], expected=True) == pytest.approx([expected])
    assert read_grades(reply, ["grade"]) == [2.0]


def test_a_grid_has_an_expected_grade_for_each_query() -> None:
    spread = {"0": math.log(0.25), "2": math.log(0.75)}
    logprobs = _tokens('{"', "1", '": ', "2", ', "', "2", '": ', "1", "}", t3=spread, t7={"1": 0.0})
    assert read_grades(Reply('{"1": 2, "2": 1}', logprobs=logprobs), ["1", "2"], True) == pytest.approx([1.5, 1.0])


def test_a_grade_that_comes_twice_is_no_expected_grade() -> None:
    logprobs = _tokens(
        '{"', "x", '": {"', "grade", '": ', "3", '}, "', "grade", '": ', "1", "}", t5={"3": HALF, "2": HALF}
    )
    assert read_grades(Reply('{"x": {"grade": 3}, "grade": 1}', logprobs=logprobs), ["grade"], True) == [1.0]


def test_probabilities_are_requested_only_for_expected_grades() -> None:
    assert [request_grades(QUERIES, "x", "grid", wanted).top_logprobs > 0 for wanted in (False, True)] == [False, True]


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
