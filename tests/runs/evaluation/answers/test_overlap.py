"""Overlap with references, sets of ids and short answers: the numbers of the definitions, bounds, and traps."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.runs.evaluation.answers.families import (
    FUNCTION_WORDS,
    Overlap,
    compare_sets,
    count_common_subsequence,
    find_f1_tokens,
    find_rouge_tokens,
    measure_exact_match,
    measure_gated_f1,
    measure_list,
    measure_passages,
    measure_rouge_l,
    normalise_answer,
)

WORDS = st.lists(st.sampled_from("a b c d e".split()), max_size=70)
TEXTS = WORDS.map(" ".join)


def count_by_table(one: Sequence[str], other: Sequence[str]) -> int:
    """The plain twin: the table of the textbook, one cell for each pair of tokens."""
    row = [0] * (len(other) + 1)
    for token in one:
        above = list(row)
        for place, held in enumerate(other, 1):
            row[place] = above[place - 1] + 1 if token == held else max(above[place], row[place - 1])
    return row[-1]


@given(WORDS, WORDS)
def test_the_common_subsequence_is_as_long_as_the_table_says(one: list[str], other: list[str]) -> None:
    assert count_common_subsequence(one, other) == count_by_table(one, other)


@pytest.mark.parametrize(
    ("text", "reference", "expected"),
    [
        # Lin (2004), section 3: "police kill the gunman" and "the gunman kill police" against the reference
        ("police kill the gunman", "police killed the gunman", Overlap(3 / 4, 3 / 4, 3 / 4)),
        ("the gunman kill police", "police killed the gunman", Overlap(2 / 4, 2 / 4, 2 / 4)),
        # The example in the documentation of rouge-score
        (
            "The quick brown dog jumps on the log.",
            "The quick brown fox jumps over the lazy dog",
            Overlap(5 / 8, 5 / 9, 10 / 17),
        ),
        ("Ein Käse-Brot!", "k se brot", Overlap(3 / 4, 1.0, 6 / 7)),
        ("x", "y", Overlap(0, 0, 0)),
        ("", "y", Overlap(0, 0, 0)),
        ("!", "?", Overlap(0, 0, 0)),
    ],
)
def test_rouge_l_equals_the_definition(text: str, reference: str, expected: Overlap) -> None:
    assert tuple(measure_rouge_l(text, [reference])) == pytest.approx(tuple(expected), abs=1e-9)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4))
def test_rouge_l_is_within_bounds_and_ignores_the_order_of_references(text: str, references: list[str]) -> None:
    found = measure_rouge_l(text, references)
    assert all(0 <= number <= 1 for number in found)
    assert min(found[:2]) - 1e-12 <= found.f1 <= max(found[:2]) + 1e-12
    assert {measure_rouge_l(text, order) for order in itertools.permutations(references)} == {found}
    assert found.f1 == max(measure_rouge_l(text, [reference]).f1 for reference in references)


@given(st.text(), st.lists(st.text(), max_size=2))
def test_a_text_is_identical_to_itself(text: str, others: list[str]) -> None:
    whole = float(bool(find_rouge_tokens(text)))
    assert tuple(measure_rouge_l(text, [text])) == (whole, whole, whole)
    assert measure_rouge_l(text, [*others, text]).f1 >= whole


@pytest.mark.parametrize("references", [["a b c d", "a"], ["a", "a b c d"]])
def test_of_two_references_with_the_same_f1_the_better_recall_decides(references: list[str]) -> None:
    assert tuple(measure_rouge_l("a b", references)) == pytest.approx((1 / 2, 1, 2 / 3))


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        ("abc", "bcd", Overlap(2 / 3, 2 / 3, 2 / 3)),
        ("a", "abcd", Overlap(1, 1 / 4, 2 / 5)),
        ("", "a", Overlap(0, 0, 0)),
        ("ab", "ab", Overlap(1, 1, 1)),
    ],
)
def test_sets_are_compared_by_their_common_ids(found: str, wanted: str, expected: Overlap) -> None:
    assert tuple(compare_sets(set(found), set(wanted))) == pytest.approx(tuple(expected))


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
