"""Quotes: their places in documents, the segments that hold them, and names that a claim may use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.answers.quotes import (
    find_names,
    find_naming_segments,
    find_quote,
    find_quoted_segments,
    split_words,
)
from keystone.generation.context.texts import neutralise
from keystone.indexing.types import Document, Segment, Span

TEXT = "Bees dance \u2013 they \u201ctell\u201d  where\nflowers are. A queen isn't alone. Workers <collect> nectar."


def document(text: str, *bounds: tuple[int, int]) -> Document:
    segments = tuple(Segment(f"d#{start}_{end}", Span("d", start, end)) for start, end in bounds)
    return Document("d", text, segments=segments)


WHOLE = document(TEXT)
ALL = [Span("d", 0, len(TEXT))]


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        pytest.param("A queen isn't alone.", "A queen isn't alone.", id="as it is"),
        pytest.param("they tell where", None, id="quotes left out"),
        pytest.param("Bees dance - they 'tell' where", "Bees dance \u2013 they \u201ctell\u201d  where", id="marks"),
        pytest.param(" where flowers \n\n are. A ", "where\nflowers are. A", id="white space"),
        pytest.param("A queen isn\u2019t alone", "A queen isn't alone", id="a curly apostrophe"),
        pytest.param("Workers \u2039collect\u203a nectar", None, id="a bracket that delimiting does not make"),
        pytest.param("Workers \u2039collect> nectar", "Workers <collect> nectar", id="as the model was shown it"),
        pytest.param("a queen isn't alone.", None, id="another case"),
        pytest.param("A queen is not alone.", None, id="other words"),
        pytest.param("Bees dance ... A queen", None, id="two places"),
        pytest.param("flowers are", None, id="too short"),
        pytest.param(" ".join(["flowers"] * 300), None, id="too long"),
        pytest.param(".* (Bees|queen)+ \\w+ [a-z]*", None, id="no pattern of its own"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_a_quote_is_found_by_its_words(quote: str, found: str | None) -> None:
    span = find_quote(WHOLE, ALL, quote)
    assert (span and TEXT[span.start : span.end]) == found


def test_a_quote_outside_of_the_shown_stretches_is_not_found() -> None:
    quote = "A queen isn't alone."
    start = TEXT.index(quote)
    assert find_quote(WHOLE, [Span("d", start, start + len(quote))], quote)
    assert find_quote(WHOLE, [Span("d", start, start + len(quote) - 1)], quote) is None
    assert find_quote(WHOLE, [Span("d", 0, start + 3), Span("d", start + 3, len(TEXT))], quote) is None
    assert find_quote(WHOLE, [Span("e", 0, len(TEXT))], quote) is None
    assert find_quote(WHOLE, [], quote) is None


@given(
    text=st.text(
        st.sampled_from("ab <'\"\u2019\u2014-\n\t[(.*") | st.characters(codec="utf-8"), min_size=20, max_size=60
    ),
    ends=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_each_stretch_that_a_model_copies_is_found(text: str, ends: tuple[int, int]) -> None:
    start, end = sorted(min(len(text), place) for place in ends)
    copied = " ".join(neutralise(text)[start:end].split())
    span = find_quote(document(text), [Span("d", 0, len(text))], copied)
    long_enough = len("".join(copied.split())) >= 15
    assert (span is not None) == long_enough
    assert span is None or len("".join(text[span.start : span.end].split())) == len("".join(copied.split()))


@pytest.mark.parametrize(
    ("bounds", "quote", "ids"),
    [
        pytest.param([(0, 10), (10, 20)], (2, 8), ["d#0_10"], id="in one"),
        pytest.param([(0, 10), (10, 20)], (4, 13), ["d#0_10", "d#10_20"], id="across two: the larger part first"),
        pytest.param([(0, 10), (10, 20)], (8, 19), ["d#10_20", "d#0_10"], id="across two, the second is larger"),
        pytest.param([(0, 12), (4, 16), (8, 20)], (9, 11), ["d#4_16"], id="in three: its middle"),
        pytest.param([(0, 10), (5, 15), (10, 20)], (8, 14), ["d#5_15"], id="one that holds all goes before parts"),
        pytest.param([(0, 4), (16, 20)], (6, 10), [], id="in a gap"),
        pytest.param([], (6, 10), [], id="no segments"),
    ],
)
def test_a_quote_is_cited_by_the_fewest_segments_that_hold_it(
    bounds: list[tuple[int, int]], quote: tuple[int, int], ids: list[str]
) -> None:
    found = find_quoted_segments(document("x" * 20, *bounds), Span("d", *quote))
    assert [segment.id for segment in found] == ids


@given(
    bounds=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), max_size=6, unique=True),
    quote=st.tuples(st.integers(0, 30), st.integers(1, 12)),
)
def test_cited_segments_hold_all_that_any_segment_holds_of_a_quote(
    bounds: list[tuple[int, int]], quote: tuple[int, int]
) -> None:
    made = document("x" * 42, *sorted((start, start + size) for start, size in bounds))
    span = Span("d", quote[0], quote[0] + quote[1])
    found = find_quoted_segments(made, span)

    def hold(segments: list[Segment]) -> set[int]:
        return {place for one in segments for place in range(one.span.start, one.span.end)} & set(
            range(span.start, span.end)
        )

    assert hold(found) == hold(list(made.segments))
    assert len(found) == len(set(found))
    assert all(hold([one]) for one in found)


def test_names_are_found_in_the_nearest_segments_that_were_shown() -> None:
    text = "class Hive begins. It has room. class Hive again. Swarm_2 leaves it."
    made = document(text, (0, 18), (19, 31), (32, 49), (50, 68))
    quote, shown = Span("d", 19, 30), [Span("d", 0, 68)]
    assert [one.id for one in find_naming_segments(made, quote, shown, {"hive"})] == ["d#0_18"]
    assert [one.id for one in find_naming_segments(made, quote, [Span("d", 19, 68)], {"hive"})] == ["d#32_49"]
    assert {one.id for one in find_naming_segments(made, quote, shown, {"hive", "swarm_2"})} == {"d#0_18", "d#50_68"}
    assert find_naming_segments(made, quote, shown, {"wasp"}) == []
    assert find_naming_segments(made, quote, shown, set()) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("The bees dance.", set(), id="a capital at the beginning"),
        pytest.param("In Vienna bees dance.", {"vienna"}, id="a capital inside"),
        pytest.param("Bees dance. They fly: It is so.", set(), id="several beginnings"),
        pytest.param("BaseHandler opens URLs.", {"basehandler", "url"}, id="capitals inside words"),
        pytest.param("Call os.path.join or max_size.", {"o", "path", "join", "max_size"}, id="points and underscores"),
        pytest.param("It takes 1,000 or 3.5 grams.", {"1000", "3", "5"}, id="numbers"),
        pytest.param("I saw a B in it.", set(), id="a letter alone"),
    ],
)
def test_names_and_numbers_of_a_text(text: str, names: set[str]) -> None:
    assert find_names(text).keys() == names
    assert names <= split_words(text)
