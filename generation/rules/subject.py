"""Sentences of documents with their subject, where only the text around them names it."""

import re

from indexing.types import Document, Span

MOST_TITLE_WORDS = 4
"""The most words of a title that is a name. Longer titles are headlines."""

_THIS_DOCUMENT = re.compile(r"^This\s+(module|package|library|tool|program|software|application|product)\b")
_ENTRY = re.compile(
    r"(?:async\s+|def\s+|class\s+)?([^\W_][\w.]*)\([^()]*(?:\([^()]*\)[^()]*)*\)(?:\s*->[^\n]*)?:?[ \t]*$"
)
"""A line that opens an entry of a manual: a name with its arguments."""


def read_sentence(document: Document, span: Span) -> str:
    """Read a sentence of a document on one line, with its subject.

    The title replaces "This" before a word such as "module": of the page `timeit`, "This module measures time." becomes
    "The timeit module measures time." A sentence below a line such as `run(task)` opens with "run() of timeit - ".
    A title and its explanation, such as "timeit - Tool for measuring time", end with a full stop.
    """
    title = document.title if len(document.title.split()) <= MOST_TITLE_WORDS else ""
    entry, text = _find_entry(document, span)
    if entry:
        return f"{entry}(){f' of {title}' if title else ''} - {text}"
    if text.startswith(f"{document.title} - ") and text[-1].isalnum():
        return f"{text}."
    return _THIS_DOCUMENT.sub(lambda found: f"The {title} {found[1]}", text) if title else text


def _find_entry(document: Document, span: Span) -> tuple[str, str]:
    """Find the name that a sentence explains, empty if there is none, and the sentence on one line."""
    text = document.text[span.start : span.end]
    first, _, rest = text.partition("\n")
    if rest and (entry := _ENTRY.match(first)):
        return entry[1], " ".join(rest.split())
    before = document.text[max(0, span.start - 200) : span.start].rstrip(" \t")
    line = before[:-1].rpartition("\n")[2] if before.endswith("\n") else ""
    entry = _ENTRY.match(line)
    return entry[1] if entry else "", " ".join(text.split())
