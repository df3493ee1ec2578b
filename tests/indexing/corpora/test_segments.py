"""Segments: sentences by punctuation and line, windows of ten with stride five, official segments kept."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.corpora.segments import (
    SHORT_LINE_CHARACTERS,
    STRIDE_SENTENCES,
    WINDOW_SENTENCES,
    cut_segments,
    make_windows,
    split_sentences,
)
from keystone.indexing.types import Document, Segment, Span

ANY_TEXT = st.text(max_size=200)
PROSE = st.lists(
    st.sampled_from(["A", "bee", "hums", " Dr.", " e.g.", "3.5", "\r\n", "x" * 50, *'.?!,")\u201d\n \u00a0'])
).map("".join)
LONG = "this line has more characters than a heading ever has"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "One stops. Two asks? Three shouts! Four.",
            ["One stops.", "Two asks?", "Three shouts!", "Four."],
            id="stop, question mark, exclamation mark",
        ),
        pytest.param("Really?! Yes... So.", ["Really?!", "Yes...", "So."], id="several marks"),
        pytest.param(
            "Ask Dr. Brown, e.g. Ann Brown, or J. R. Brown. He knows.",
            ["Ask Dr. Brown, e.g. Ann Brown, or J. R. Brown.", "He knows."],
            id="abbreviations and initials",
        ),
        pytest.param(
            "The U.S. Army et al. See Fig. 3 here. Then go.",
            ["The U.S. Army et al. See Fig. 3 here.", "Then go."],
            id="abbreviations before capitals, digits",
        ),
        pytest.param(
            "THE U.N . MET . THE U.S. , TOO, MET THE U.S.S.R . AGAIN . PLAN B . ENDED .",
            ["THE U.N . MET .", "THE U.S. , TOO, MET THE U.S.S.R . AGAIN .", "PLAN B .", "ENDED ."],
            id="stops that stand apart",
        ),
        pytest.param("It costs 3.5 euros in v2.1. Cheap.", ["It costs 3.5 euros in v2.1.", "Cheap."], id="decimals"),
        pytest.param(
            "See www.site.org. or else. 7 more.",
            ["See www.site.org. or else.", "7 more."],
            id="a small letter goes on, a digit begins",
        ),
        pytest.param(
            'He said "Stop." Then he went. "Why?" (It ended.) \u201cSo.\u201d \u2018Yes.\u2019 No',
            ['He said "Stop."', "Then he went.", '"Why?"', "(It ended.)", "\u201cSo.\u201d", "\u2018Yes.\u2019", "No"],
            id="quotes and brackets stay with their sentence",
        ),
        pytest.param(
            "\u00c4pfel fallen. \u00d6l brennt.", ["\u00c4pfel fallen.", "\u00d6l brennt."], id="capitals beyond ASCII"
        ),
        pytest.param(
            f"{LONG}\n\n{LONG}\nand goes on", [LONG, f"{LONG}\nand goes on"], id="a blank line, a wrapped line"
        ),
        pytest.param(
            f"Heading\n{LONG}\r\n- item\r\n- item", ["Heading", LONG + "\r\n- item", "- item"], id="a short line ends"
        ),
        pytest.param(
            "salt,\nsugar,\nflour\nmilk", ["salt,\nsugar,\nflour", "milk"], id="a short line with a comma goes on"
        ),
        pytest.param(
            "x" * SHORT_LINE_CHARACTERS + "\na\n" + "x" * (SHORT_LINE_CHARACTERS + 1) + "\nb",
            ["x" * SHORT_LINE_CHARACTERS, "a", "x" * (SHORT_LINE_CHARACTERS + 1) + "\nb"],
            id="the longest short line",
        ),
        pytest.param("No final stop", ["No final stop"], id="no final stop"),
        pytest.param("  \t Spaces around.  \n", ["Spaces around."], id="trimmed"),
        pytest.param("", [], id="empty"),
        pytest.param(" \n\n\t ", [], id="only space"),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in split_sentences(text)] == expected


@pytest.mark.parametrize(
    ("sentence", "between"),
    [
        pytest.param("The river rose.", " ", id="English"),
        pytest.param("El r\u00edo subi\u00f3.", " ", id="Spanish"),
        pytest.param(
            "\u0420\u0435\u043a\u0430 \u043f\u043e\u0434\u043d\u044f\u043b\u0430\u0441\u044c.", " ", id="Russian"
        ),
        pytest.param("\u6cb3\u6c34\u4e0a\u6da8\u4e86\u3002", "", id="Chinese"),
        pytest.param("\u6cb3\u6c34\u4e0a\u6da8\u4e86\u5417\uff1f\uff01", "", id="Chinese questions"),
        pytest.param("\u771f\u7684\u5417\uff1f\u300d", "", id="a Chinese question in quotes"),
        pytest.param("\u5ddd\u306e\u6c34\u304c\u5897\u3048\u305f\u3002", "", id="Japanese"),
        pytest.param(
            "\u0643\u0645 \u0627\u0631\u062a\u0641\u0639 \u0627\u0644\u0646\u0647\u0631\u061f",
            " ",
            id="Arabic questions",
        ),
        pytest.param("\u0646\u062f\u06cc \u0628\u0691\u06be \u06af\u0626\u06cc\u06d4", " ", id="Urdu"),
        pytest.param("\u0928\u0926\u0940 \u092c\u0922\u093c \u0917\u0908\u0964", " ", id="Hindi"),
    ],
)
def test_the_stops_of_each_script_end_sentences(sentence: str, between: str) -> None:
    text = between.join([sentence] * 60)
    assert [text[start:end] for start, end in split_sentences(text)] == [sentence] * 60
    assert len(cut_segments(Document("d", text)).segments) == 11


@given(ANY_TEXT | PROSE)
def test_sentences_are_ordered_trimmed_and_hold_every_character_once(text: str) -> None:
    spans = split_sentences(text)
    flat = [offset for span in spans for offset in span]
    assert flat == sorted(flat)
    assert all(text[start:end] and text[start:end] == text[start:end].strip() for start, end in spans)
    held = [offset for start, end in spans for offset in range(start, end) if not text[offset].isspace()]
    assert held == [offset for offset, character in enumerate(text) if not character.isspace()]


@given(ANY_TEXT | PROSE)
def test_a_blank_line_always_ends_a_sentence(text: str) -> None:
    assert not [s for s in split_sentences(text) if re.search(r"\n[ \t\r]*\n", text[s[0] : s[1]])]


@given(st.integers(0, 200))
def test_every_sentence_is_in_one_or_two_windows_and_the_last_window_ends_with_the_last(count: int) -> None:
    spans = [(10 * i, 10 * i + 9) for i in range(count)]
    found = make_windows(spans)
    times = [sum(start <= a and b <= end for start, end in found) for a, b in spans]
    assert all(1 <= n <= 2 for n in times)
    assert [start for start, _ in found] == [10 * STRIDE_SENTENCES * i for i in range(len(found))]
    assert [end for _, end in found] == [
        min(10 * (STRIDE_SENTENCES * i + WINDOW_SENTENCES), 10 * count) - 1 for i in range(len(found))
    ]
    assert count == 0 or found[-1][1] == spans[-1][1]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(0, [], id="none"),
        pytest.param(1, [(0, 1)], id="one"),
        pytest.param(10, [(0, 10)], id="exactly one window"),
        pytest.param(11, [(0, 10), (5, 11)], id="one sentence more"),
        pytest.param(15, [(0, 10), (5, 15)], id="exactly two windows"),
        pytest.param(16, [(0, 10), (5, 15), (10, 16)], id="three windows"),
    ],
)
def test_windows(count: int, expected: list[tuple[int, int]]) -> None:
    assert make_windows([(i, i + 1) for i in range(count)]) == expected


@given(ANY_TEXT | PROSE)
def test_segments_are_numbered_and_named_by_their_offset_and_hold_the_whole_text(text: str) -> None:
    document = cut_segments(Document("a#b", text))
    spans = [segment.span for segment in document.segments]
    assert [s.id for s in document.segments] == [f"a#b#w{i}_{span.start}" for i, span in enumerate(spans)]
    assert [(s.start, s.end) for s in spans] == (make_windows(split_sentences(text)) or [(0, len(text))])
    assert {s.doc_id for s in spans} == {"a#b"}
    held = {offset for s in spans for offset in range(s.start, s.end)}
    assert all(offset in held or character.isspace() for offset, character in enumerate(text))
    assert cut_segments(document) is document


def test_a_segment_is_ten_sentences_and_begins_five_after_the_one_before() -> None:
    text = " ".join(f"Sentence {i} is here." for i in range(12))
    document = cut_segments(Document("d", text, "t", "u", "h"))
    starts = [text.index(f"Sentence {i} ") for i in (0, 5)]
    assert [s.id for s in document.segments] == [f"d#w0_{starts[0]}", f"d#w1_{starts[1]}"]
    first, last = (document.segment_text(s) for s in document.segments)
    assert (first, last) == (text[: text.index(" Sentence 10")], text[starts[1] :])
    assert (document.title, document.url, document.headings) == ("t", "u", "h")


def test_segments_of_the_corpus_are_kept() -> None:
    document = Document("d", "One. Two.", segments=(Segment("official", Span("d", 0, 4)),))
    assert cut_segments(document) == document
