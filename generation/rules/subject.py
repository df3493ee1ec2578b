"""Sentences of documents with their subject, where only the text around them names it."""

import re

from indexing.types import Document, Span

MOST_TITLE_WORDS = 4
"""The most words of a title that is a name. Longer titles are headlines."""

MOST_ENTRY_CHARACTERS = 400
"""The characters before a sentence in which the line that opens its entry is looked for."""

_THIS_DOCUMENT = re.compile(r"^This\s+(module|package|library|tool|program|software|application|product)\b")
_ENTRY = re.compile(
    r"(?:async\s+)?(?:def\s+|class\s+)?([^\W_][\w.]*)"
    r"\([^()]*(?:\([^()]*\)[^()]*)*\)(?:\s*->[^\n]*|\s+method\s+of\s[^\n]*)?:?[ \t]*$"
)
"""A line that opens an entry of a manual: a name with its arguments."""


def read_sentence(document: Document, span: Span) -> str:
    """Read a sentence of a document on one line, with its subject.

    The title replaces "This" before a word such as "module": of the page `timeit`, "This module measures time." becomes
    "The timeit module measures time." The first sentence below a line such as `run(task)` opens with
    "run() of timeit - ". Such a sentence, and a title with its explanation, end with a full stop.
    """
    title = document.title if len(document.title.split()) <= MOST_TITLE_WORDS else ""
    entry, text = _find_entry(document.text, span)
    if entry:
        if text[-1:].isalnum() and document.text.startswith("\n\n", span.end):
            text += "."
        return f"{entry}(){f' of {title}' if title else ''} - {text}"
    if text.startswith(f"{document.title} - ") and text[-1].isalnum():
        return f"{text}."
    return _THIS_DOCUMENT.sub(lambda found: f"The {title} {found[1]}", text) if title else text


def _find_entry(text: str, span: Span) -> tuple[str, str]:
    """Find the name that a sentence explains, empty if there is none, and the sentence on one line."""
    sentence = text[span.start : span.end]
    first, _, rest = sentence.partition("\n")
    entry = _ENTRY.match(first) if rest else None
    if entry:
        sentence = rest
    else:
        entry = _match_line_before(text, span.start)
    return entry[1] if entry else "", " ".join(sentence.split())


def _match_line_before(text: str, place: int) -> re.Match[str] | None:
    """Match the line before a place, if it opens an entry. A blank line may stand below the line of a class."""
    before = text[max(0, place - MOST_ENTRY_CHARACTERS) : place]
    lines = before.rstrip()
    line_ends = before.count("\n", len(lines))
    entry = _ENTRY.match(lines.rpartition("\n")[2]) if line_ends else None
    is_class = entry is not None and entry[1].rpartition(".")[2][:1].isupper()
    return entry if line_ends == 1 or is_class else None
