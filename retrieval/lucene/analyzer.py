"""The stems of texts, by Anserini's analyzer for English."""

from functools import cache
from typing import Any

from indexing.lucene.java import ALONE, java_class
from indexing.lucene.write import analyzer


def stems_of(text: str) -> list[str]:
    """The stems of a text in order, as they are indexed."""
    with ALONE:
        analysis, english = _analysis()
        shown: str = analysis.analyze(english, text).toString()
    return shown[1:-1].split(", ") if len(shown) > 2 else []


@cache
def _analysis() -> tuple[Any, Any]:
    return java_class("io.anserini.analysis.AnalyzerUtils"), analyzer()
