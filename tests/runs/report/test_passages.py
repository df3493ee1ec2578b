"""The result of a request, as lines and as JSON: the chosen segment, and texts that could mislead a terminal."""

import unicodedata

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.generation.types import Fallback
from keystone.indexing.types import Document, Segment, Span
from keystone.runs.report.passages import (
    CitedSentence,
    Passage,
    Result,
    choose_passage,
    format_json,
    format_passage,
    format_result,
)
from keystone.runs.wording import escape_controls

TEXT = "Bees dance. Ants walk in lines. Wasps walk alone."
SEGMENTS = tuple(Segment(f"d#{start}", Span("d", start, end)) for start, end in ((0, 11), (12, 31), (32, 49)))
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        pytest.param("a wasp", "Wasps walk alone.", id="the segment with the term"),
        pytest.param("walk", "Ants walk in lines.", id="the first of equal ones"),
        pytest.param("lions", "Bees dance.", id="the beginning if no segment has a term"),
    ],
)
def test_the_passage_of_a_document_has_most_terms_of_the_text(wanted: str, chosen: str) -> None:
    passage = choose_passage(Document("d", TEXT, "Insects", segments=SEGMENTS), wanted, 0.5)
    assert passage == Passage(f"d#{TEXT.index(chosen)}", "d", "Insects", "", chosen, 0.5)


@settings(max_examples=40)
@given(TEXTS, TEXTS)
def test_no_text_of_a_corpus_reaches_the_terminal_as_a_command(title: str, text: str) -> None:
    passage = Passage("d", "d", title, f"https://{title}", text)
    result = Result("ask", "index", text, (passage,), (CitedSentence(text, (1,)),), (Fallback("1", "answer", text),))
    printed = "\n".join(map(escape_controls, [*format_result(result), *format_passage(passage), format_json(result)]))
    assert not {unicodedata.category(letter) for letter in printed if letter not in "\n\t"} & {"Cc", "Cf", "Zl", "Zp"}
    found = orjson.loads(escape_controls(format_json(result)))
    assert found["passages"][0]["title"] == title
    assert found["sentences"] == [{"text": text, "citations": [1]}]


def test_passages_are_numbered_and_apart_from_each_other() -> None:
    passages = (Passage("a#1", "a", "Ants", "", "Ants\nwalk."), Passage("b", "b", "", "", "Bees dance."))
    sentences = (CitedSentence("Both move.", (2, 1)), CitedSentence("Nobody knows.", ()))
    assert list(format_result(Result("ask", "index", "?", passages, sentences))) == [
        "Both move. [2] [1] Nobody knows.",
        "",
        "[1] Ants (a#1)",
        "    Ants walk.",
        "",
        "[2] b",
        "    Bees dance.",
    ]


def test_a_shown_document_keeps_its_paragraphs() -> None:
    passage = Passage("d", "d", "Title", "", "One.\n\nTwo.")
    assert list(format_passage(passage)) == ["Title", "d", "", "One.", "", "Two."]
