"""The form of answers by rules: gaps, pronouns at the beginning, repetition, and openings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.rules.answer_form import admits_gap, count_repeated, leads, points_back


@pytest.mark.parametrize(
    "sentence",
    [
        "The documents at hand do not show the arguments of sendmail().",
        "The sources don't say whether queues copy.",
        "No document tells how to look inside a pickle.",
        "None of these pages compares threads with processes.",
        "How .mo files are made is not described in the documents.",
        "The passages are silent on summer time.",
        "The sources leave the question of rounding open.",
        "There is nothing about descriptors in these documents.",
    ],
)
def test_a_gap_is_found(sentence: str) -> None:
    assert admits_gap(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "So do not simply load it: the documentation refers to the source of the pickletools module.",
        "The source file is not copied if the target exists.",
        "A page that is not cached does not slow the server down.",
        "Evidence for this is a study of 2019.",
        "A document without a declaration is not valid.",
        "The call does not return text.",
        "",
    ],
)
def test_other_sentences_are_no_gaps(sentence: str) -> None:
    assert not admits_gap(sentence)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("It also integrates with unittest.", True),
        ("Its clock is monotonic.", True),
        ("This matters because a deep copy copies everything.", True),
        ("They are slow.", True),
        ("“These” need a lock.", True),
        ("It is possible to sort in place.", False),
        ("It was unclear whether bees sleep.", False),
        ("Those who write may read.", False),
        ("Items are sorted.", False),
        ("Thistles grow.", False),
        ("", False),
    ],
)
def test_a_sentence_that_points_back_is_found(sentence: str, expected: bool) -> None:
    assert points_back(sentence) is expected


def test_a_repeated_sentence_is_counted_once_and_short_ones_never() -> None:
    first = "Honey bees dance to tell other bees where flowers grow."
    assert count_repeated([first, "Ants walk.", "Ants walk."]) == 0
    assert count_repeated([first, "Bees dance to tell where honey flowers grow.", first]) == 2


@pytest.mark.parametrize(
    ("question", "opening", "expected"),
    [
        ("Why do honey bees dance?", "Honey bees dance to tell the way.", True),
        ("Why do honey bees dance?", "Ants walk to tell the way.", False),
        ("Why do honey bees dance?", "They dance as honey bees.", False),
        ("Why do honey bees dance?", "The documents do not say why honey bees dance.", False),
        ("Bees?", "Bees dance.", True),
    ],
)
def test_an_opening_is_on_what_was_asked(question: str, opening: str, expected: bool) -> None:
    assert leads(question, [opening, "More."]) is expected
    assert not leads(question, [])


@given(st.lists(st.text(max_size=60), max_size=6), st.text(max_size=30))
def test_any_text_has_a_form(sentences: list[str], question: str) -> None:
    assert 0 <= count_repeated(sentences) <= len(sentences)
    assert isinstance(leads(question, sentences), bool)
    assert all(isinstance(rule(one), bool) for one in sentences for rule in (admits_gap, points_back))
