"""Rules read the documents in the language of the answer alone."""

import numpy as np
import pytest

from keystone.generation.context.topic import TopicContext, keep_language
from keystone.indexing.types import Document

TEXTS = (
    "The law was passed in May, and it is the first of its kind.",
    "\u0417\u0430\u043a\u043e\u043d \u043f\u0440\u0438\u043d\u044f\u0442 \u0432 \u043c\u0430\u0435.",
    "La ley que se aprob\u00f3 en mayo es la primera de su tipo, y no es la \u00fanica.",
    "9-1-1",
)


@pytest.mark.parametrize(
    ("language", "rows"), [("English", [0, 3]), ("Russian", [1, 3]), ("Spanish", [2, 3]), ("", [0, 1, 2, 3])]
)
def test_documents_in_other_languages_are_left_out(language: str, rows: list[int]) -> None:
    vectors = np.zeros((1, 2), np.float32)
    documents = {row: Document(f"d{row}", text) for row, text in enumerate(TEXTS)}
    kept = keep_language(TopicContext(documents, dict.fromkeys(documents, vectors), (), vectors), language)
    assert list(kept.documents) == list(kept.segments) == rows
