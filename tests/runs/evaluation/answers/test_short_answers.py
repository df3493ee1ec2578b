"""Exact match and hit, lists of answers, and F1*: the numbers of the definitions, and their traps."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.runs.evaluation.answers.families import (
    FUNCTION_WORDS,
    find_f1_tokens,
    measure_exact_match,
    measure_gated_f1,
    measure_list,
    measure_passages,
    normalise_answer,
)

ANSWERS = st.lists(st.lists(st.text(max_size=5), min_size=1, max_size=3), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Beatles,\nan act!", "beatles act"),
        ("U.S.A.", "usa"),
        ("a theory", "theory"),
        ("The", ""),
        ("Zürich", "zürich"),
    ],
)
def test_answers_are_normalised_as_squad_does(text: str, normal: str) -> None:
    assert normalise_answer(text) == normal


@pytest.mark.parametrize(
    ("text", "answers", "expected"),
    [
        ("It was G. Stanley Hall.", [["G Stanley Hall", "Stanley Hall"]], (1, 1)),
        ("It was Stanley Hall.", [["Hall"], ["Freud"]], (0.5, 0)),
        ("A party", [["art"]], (1, 1)),  # a substring, as in ALCE, not a word
        ("35 stores", [["35"], ["stores"], ["thirty"]], (2 / 3, 0)),
        ("", [["x"]], (0, 0)),
        ("anything", [["the", "!"]], (0, 0)),  # spellings that are empty when normalised are in no text
    ],
)
def test_exact_match_is_the_share_of_answers_in_the_text(
    text: str, answers: Sequence[Sequence[str]], expected: tuple[float, float]
) -> None:
    assert measure_exact_match(text, answers) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "answers", "recall", "f1"),
    [
        ("Rome, Oslo, Paris.", [["Rome"], ["Paris", "City of Light"]], 1, 2 * (2 / 3) / (2 / 3 + 1)),
        ("City of light, Paris", [["Rome"], ["Paris", "City of Light"]], 1 / 2, 2 * 0.5 / 1.5),
        ("b, c, d, e, f, x", [[name] for name in "bcdefghij"], 1, 2 * (5 / 6) / (5 / 6 + 1)),
        ("a, the, Rome", [["Rome"]], 1, 1),  # a part that is an article alone does not count
        ("b, c", [[name] for name in "bcdefghij"], 2 / 5, 2 * 0.4 / 1.4),
        ("It is Rome", [["Rome"]], 0, 0),
        (", ,", [["Rome"]], 0, 0),
        ("x", [["the"]], 0, 0),
    ],
)
def test_a_list_has_recall_of_at_most_five_answers(
    text: str, answers: Sequence[Sequence[str]], recall: float, f1: float
) -> None:
    assert measure_list(text, answers) == pytest.approx((recall, f1))


@pytest.mark.parametrize(
    ("passages", "answers", "expected"),
    [
        (["Rome or Oslo", "no", "Paris"], [["Rome"], ["Paris", "City of Light"]], (1, 1, (1 / 2 + 1 / 6) / 3)),
        (["no", "Rome"], [["Rome"], ["Paris"]], (1 / 2, 0, (1 / 4) / 2)),
        (["Rome, Paris"], [["Rome"], ["Paris"]], (1, 1, 1)),
        ([], [["Rome"]], (0, 0, 0)),
    ],
)
def test_passages_are_measured_together_and_by_rank(
    passages: Sequence[str], answers: Sequence[Sequence[str]], expected: tuple[float, float, float]
) -> None:
    assert measure_passages(passages, answers) == pytest.approx(expected)


@pytest.mark.slow
@given(st.text(), ANSWERS)
def test_measures_of_short_answers_stay_within_bounds(text: str, answers: list[list[str]]) -> None:
    for number in (
        *measure_exact_match(text, answers),
        *measure_list(text, answers),
        *measure_passages(text.split(), answers),
    ):
        assert 0 <= number <= 1
    share, hit = measure_exact_match(text, answers)
    assert (hit == 1) == (share == 1)


@given(st.lists(st.lists(st.text("bcd", min_size=2, max_size=4), min_size=1, max_size=3), min_size=1, max_size=8))
def test_a_list_of_one_spelling_of_each_answer_is_perfect(answers: list[list[str]]) -> None:
    text = ", ".join(names[-1] for names in answers)
    assert measure_exact_match(text, answers) == (1, 1)
    assert measure_list(text, answers) == (1, 1)


@pytest.mark.parametrize(
    ("text", "reference", "keywords", "expected"),
    [
        # 1 of 5 keywords is 0.2, which passes the gate; common 1, found 1, wanted 2
        pytest.param("bees", "bees dance", ["bees dance north south east"], 2 / 3, id="at the threshold"),
        pytest.param("bees", "bees dance", ["bees dance north south east west"], 0, id="below the threshold"),
        # of and in are found, but count for nothing; they stay among the five wanted ones
        pytest.param("of in", "of in", ["of in north south east"], 0, id="function words leave the numerator"),
        pytest.param("bees of", "bees of", ["bees of in at by"], 1, id="function words stay in the denominator"),
        pytest.param("bees of", "bees of", ["bees of in at by to"], 0, id="and so make the gate harder"),
        pytest.param("bees", "bees", ["the"], 0, id="no keyword is left"),
        pytest.param("", "bees", ["bees"], 0, id="no answer"),
        # Chinese: 2 of 5 characters is 0.4; one of them is not enough
        pytest.param("蜜蜂", "蜜蜂", ["蜜蜂跳舞蹈"], 1, id="Chinese at the threshold"),
        pytest.param("蜜", "蜜蜂", ["蜜蜂跳舞蹈"], 0, id="Chinese below the threshold"),
    ],
)
def test_f1_star_counts_behind_the_gate_of_keywords(
    text: str, reference: str, keywords: list[str], expected: float
) -> None:
    assert measure_gated_f1(text, [reference], keywords) == pytest.approx(expected)


@given(st.text(min_size=1), st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_f1_star_is_within_bounds_and_1_for_the_reference_itself(text: str, references: list[str]) -> None:
    number = measure_gated_f1(text, references, [text])
    assert 0 <= number <= 1
    assert measure_gated_f1(text, references[::-1], [text]) == number
    tokens = find_f1_tokens(text)
    if tokens and not FUNCTION_WORDS.intersection(tokens):
        assert measure_gated_f1(text, [text], [text]) == 1
