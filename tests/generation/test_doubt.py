"""Doubt whether an answer by rules answers its narrative."""

import pytest

from keystone.generation.rules.quotes import is_doubtful
from keystone.indexing.types import MINILM, Embedding

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
