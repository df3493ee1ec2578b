"""A flat list of headings finds its places in a text."""

import time
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.structures.sections import normal_form, place_headings

PROSE = "It began a long time ago, and nobody knows for certain how it went on."


def placed(text: str, headings: list[str]) -> list[int | None]:
    """The number of the line on which each heading is found."""
    return [None if span is None else text.count("\n", 0, span[0]) for span in place_headings(text, headings)]


@pytest.mark.parametrize(
    ("lines", "headings", "expected"),
    [
        pytest.param(["A", PROSE, "B", PROSE], ["A", "B"], [0, 2], id="each has its line"),
        pytest.param(["A", "B", "A", PROSE, "B", PROSE], ["A", "B"], [2, 4], id="a table of contents is passed over"),
        pytest.param(["A", "B", "A", PROSE, "B", PROSE], ["A", "B", "A", "B"], [0, 1, 2, 4], id="the list is doubled"),
        pytest.param(["A", PROSE, "A", "x"], ["A"], [0], id="prose below counts more than a later place"),
        pytest.param(["A", "x", "A", "y"], ["A"], [2], id="of equal places the later one"),
        pytest.param(["A", PROSE, "B", PROSE, "A", PROSE], ["A", "B", "A"], [0, 2, 4], id="the same words twice"),
        pytest.param(["B", PROSE, "A", PROSE], ["A", "B", "C"], [2, None, None], id="places rise; one is not there"),
        pytest.param(["  hISTORY :", PROSE], ["History"], [0], id="case, space and a colon make no difference"),
        pytest.param([f"{PROSE} How to go on", PROSE], ["How to go on"], [0], id="after a sentence on its line"),
        pytest.param(["A a", PROSE], ["A"], [None], id="a part of a line is no heading"),
        pytest.param(["", "A"], ["", " ", "A"], [None, None, 1], id="empty headings have no place"),
        pytest.param([" ".join("abcdefghijklmnop")], [" ".join("abcdefghijklmnop")], [None], id="sixteen words"),
    ],
)
def test_places(lines: list[str], headings: list[str], expected: list[int | None]) -> None:
    assert placed("\n".join(lines), headings) == expected


def test_the_span_is_that_of_the_heading() -> None:
    text = f"{PROSE} How to go on\n{PROSE}"
    (span,) = place_headings(text, ["How to go on"])
    assert span is not None
    assert text[slice(*span)] == "How to go on"


WORDS = st.sampled_from(["A", "B", "C", PROSE])


@given(st.lists(WORDS, max_size=9), st.lists(st.sampled_from("ABC"), max_size=5))
def test_no_alignment_places_more_headings(lines: list[str], headings: list[str]) -> None:
    """The plain twin: the weight of each choice of lines for each choice of headings."""

    def weight(at: int) -> int:
        return 16 if lines[at + 1 : at + 2] == [PROSE] else 10

    def best(count: int) -> int:
        return max(
            (
                sum(map(weight, at))
                for chosen in combinations(headings, count)
                for at in combinations(range(len(lines)), count)
                if [lines[line] for line in at] == list(chosen)
            ),
            default=0,
        )

    found = [line for line in placed("\n".join(lines), headings) if line is not None]
    assert all(before < after for before, after in pairwise(found))
    assert sum(map(weight, found)) == max(best(count) for count in range(len(headings) + 1))


@given(st.text(max_size=300), st.lists(st.text(max_size=20), max_size=10))
def test_any_text_gives_rising_places_of_equal_words(text: str, headings: list[str]) -> None:
    end = 0
    for heading, span in zip(headings, place_headings(text, headings), strict=True):
        if span is not None:
            assert end <= span[0] < span[1]
            assert normal_form(text[slice(*span)]) == normal_form(heading)
            end = span[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headings", "lines"),
    [
        pytest.param(["A"] * 100_000, ["A"] * 100_000, id="all equal"),
        pytest.param([f"h{n}" for n in range(100_000)], [f"h{n}" for n in range(100_000, 0, -1)], id="in reverse"),
    ],
)
def test_a_hundred_thousand_headings(headings: list[str], lines: list[str]) -> None:
    begun = time.process_time()
    places = place_headings("\n".join(lines), headings)
    assert time.process_time() - begun < 30
    assert any(places)


@pytest.mark.parametrize("count", [10, 1000])
def test_equal_headings_all_find_a_place(count: int) -> None:
    text = "\n".join(["A", PROSE] * count)
    assert all(place_headings(text, ["A"] * count))
