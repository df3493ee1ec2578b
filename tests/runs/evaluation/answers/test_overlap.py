"""ROUGE-L and sets of ids: the numbers of the definitions, bounds, identity, and the order of references."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.runs.evaluation.answers.families import (
    Overlap,
    compare_sets,
    count_common_subsequence,
    find_rouge_tokens,
    measure_rouge_l,
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
