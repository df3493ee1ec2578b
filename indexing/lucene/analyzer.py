"""Anserini's analyzer for English, which turns a text into stems."""

from functools import cache
from typing import Any

from keystone.indexing.lucene.english import find_stems
from keystone.indexing.lucene.java import JAVA_LOCK, java_class
from keystone.indexing.lucene.write import make_analyzer


def stems_of(text: str) -> list[str]:
    """Return the stems of a text in order, as an index of Anserini holds them."""
    stems = find_stems(text)
    return find_lucene_stems(text) if stems is None else stems


def find_lucene_stems(text: str) -> list[str]:
    """Find the stems of any text by Lucene itself."""
    with JAVA_LOCK:
        analysis, english = _analysis()
        shown: str = analysis.analyze(english, text).toString()
    return shown[1:-1].split(", ") if len(shown) > 2 else []


@cache
def _analysis() -> tuple[Any, Any]:
    return java_class("io.anserini.analysis.AnalyzerUtils"), make_analyzer()
