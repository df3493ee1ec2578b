"""The sentence of a cited passage that supports a sentence of an answer, and doubt about answers by rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.rules import words
from keystone.generation.rules.support import is_doubtful
from keystone.generation.rules.words import find_quote
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.types import MINILM, Document, Embedding, Segment, Span

TEXT = "Bees find flowers by scent. A colony has one queen. It lives for years. Volcanoes throw ash."


@pytest.mark.parametrize(
    ("sentence", "quote"),
    [
        pytest.param("Bees find flowers by scent.", "Bees find flowers by scent.", id="the sentence itself"),
        pytest.param("The scent of flowers leads bees.", "Bees find flowers by scent.", id="other words"),
        pytest.param(
            "A queen of a colony lives for years.", "A colony has one queen. It lives for years.", id="two in a row"
        ),
        pytest.param("Volcanoes", "Volcanoes throw ash.", id="one word"),
        pytest.param("Tax law", None, id="nothing in common"),
        pytest.param("", None, id="no words"),
    ],
)
def test_the_quote_has_the_words_of_the_sentence(sentence: str, quote: str | None) -> None:
    document = cut_segments(Document("d", TEXT))
    span = find_quote(sentence, document, document.segments[0].id)
    assert (span and TEXT[span.start : span.end]) == quote


def test_the_quote_lies_in_the_cited_segment() -> None:
    place = TEXT.index("A colony")
    segments = (Segment("d#0", Span("d", 0, place)), Segment("d#1", Span("d", place, len(TEXT))))
    document = Document("d", TEXT, segments=segments)
    assert find_quote("Bees find flowers by scent.", document, "d#1") is None
    assert find_quote("A colony has one queen.", document, "d#1") == Span("d", place, place + 23)
    assert find_quote("A colony has one queen.", document, "d") == Span("d", place, place + 23)
    assert find_quote("A colony has one queen.", document, "d#2") is None


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("The queen\n\nA colony has one. Ash falls.", "The queen\n\nA colony has one."),
        ("Ash\n\nThe queen", "The queen"),
    ],
    ids=["with the sentence after it", "alone, if there is no sentence"],
)
def test_a_heading_is_quoted(text: str, quote: str) -> None:
    document = Document("d", text)
    span = find_quote("Who is the queen?", document, "d")
    assert span
    assert text[span.start : span.end] == quote


def test_each_sentence_of_a_long_text_is_searched_once_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    class Pattern:
        def search(self, text: str) -> bool:
            searched.append(text)
            return True

    monkeypatch.setattr(words, "_SENTENCE_END", Pattern())
    text = "Bees dance.\n\nAnts walk. " * 100
    assert find_quote("Ants walk.", Document("d", text), "d") == Span("d", 13, 23)
    assert searched == ["Bees dance.", "Ants walk."] * 100


@given(st.text(max_size=200), st.text(max_size=400))
def test_a_quote_of_any_texts_is_inside_the_document(sentence: str, text: str) -> None:
    document = cut_segments(Document("d", text))
    for segment in document.segments:
        span = find_quote(sentence, document, segment.id)
        assert span is None or segment.span.start <= span.start < span.end <= segment.span.end


SENTENCES = ["Bees find flowers by their scent.", "A colony of honey bees has one queen."]


@pytest.mark.parametrize(
    ("narrative", "sentences", "doubtful"),
    [
        pytest.param("How do bees find flowers?", SENTENCES, False, id="an answer"),
        pytest.param("What is the capital of France?", SENTENCES, True, id="no word in common"),
        pytest.param("How do I find a cheap queen size mattress?", SENTENCES, True, id="a word with another meaning"),
        pytest.param("How do bees find flowers?", [], False, id="no answer"),
        pytest.param("???", SENTENCES, True, id="no words"),
    ],
)
def test_an_answer_to_another_question_is_doubtful(narrative: str, sentences: list[str], doubtful: bool) -> None:
    assert is_doubtful(narrative, sentences, MINILM) is doubtful


def test_with_another_model_words_alone_decide() -> None:
    other = Embedding("other", url="http://127.0.0.1:9/v1")
    assert not is_doubtful("How do I find a cheap queen size mattress?", SENTENCES, other)
    assert is_doubtful("What is the capital of France?", SENTENCES, other)
