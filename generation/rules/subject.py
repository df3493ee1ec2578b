"""Sentences of documents with their subject, where only the text around them names it."""

import re
from collections.abc import Iterator

from keystone.generation.rules.stands_alone import find_name, lacks_subject
from keystone.indexing.types import Document, Span

MOST_TITLE_WORDS = 4
"""The most words of a title that is a name. Longer titles are headlines."""

OPENING_CHARACTERS = 500
"""A sentence that begins before this character opens its document."""
MOST_ENTRY_CHARACTERS = 400
"""The characters before a sentence in which the line that opens its entry is looked for, and those of a list's item."""

_THIS_DOCUMENT = re.compile(
    r"^This (?=(?:module|package|library|tool|program|software|application|product)\b)"
    r"|\bthis (?=(?:module|package|library)\b)"
)
_MARKS = re.compile(
    r"(?<![\w*])(\*{1,2})(?P<term>[^\W\d_](?:[^*]*\w)?)\1(?![\w*])"
    r"|(`{1,2})(?P<code>[^`\s][^`]*)\3"
    r"|(?<!\w)(?P<link>[^\W_]\w*?)__(?!\w)"  # a link of reStructuredText
    r"|^(?:[-*+\u2022]|[a-z\d]\))\s+"  # an item of a list
    r"|\s\((?:see|cf\.|described)\s[^()]*\)"
)
"""Stars and backticks around words, the mark of a list's item, and a pointer to another place in parentheses."""
_ANNOUNCES = re.compile(
    r"^To\s[^,]*:$|\b(?:(?:two|three|four|five|several)\b.*|(?:caveat|example|limitation|option|step|thing|way)s?.*"
    r"|(?:about|and|are|as|be|by|do|for|from|in|is|like|of|on|that|then|to|using|with))\s*:$"
)
"""Words of a sentence that says little without what follows its colon."""
_ENTRY = re.compile(
    r"(?:async\s+)?(?:def\s+|class\s+)?([^\W_][\w.]*)"
    r"\([^()]*(?:\([^()]*\)[^()]*)*\)(?:\s*->[^\n]*|\s+method\s+of\s[^\n]*)?:?[ \t]*$"
)
"""A line that opens an entry of a manual: a name with its arguments."""
_CALL = r"[^\W\d_][\w.]*[ ]?\([^()\n]*\)"
_LISTED = re.compile(
    rf"^[ \t]*(?:[-*+\u2022][ \t]+)?({_CALL}(?:,[ ]{_CALL})*|[A-Z][A-Z0-9]*_[A-Z0-9_]+)[ \t]+--?[ \t]+(?=[^\W\d_])"
    r"|^[ \t]*([a-z]\w*)(?:[ ]{2,}|\t+)(?=[A-Z].*\.$)",
    re.MULTILINE,
)
"""The names that open a line of a list, before their explanation."""


def read_sentence(document: Document, span: Span) -> str:
    """Read a sentence of a document on one line, with its subject. A colon before an example becomes a full stop."""
    text = _read_with_subject(document, span)
    return f"{text[:-1]}." if text.endswith(":") and not _ANNOUNCES.search(text) else text


def _read_with_subject(document: Document, span: Span) -> str:
    """Read a sentence of a document on one line, with its subject.

    The title replaces "This" before a word such as "module": of the page `timeit`, "This module measures time." becomes
    "The timeit module measures time." The first sentence below a line such as `run(task)` opens with
    "run() of timeit - ", and so does a line of a list such as `run() -- start a task`. Such a sentence, and a title
    with its explanation, end with a full stop.
    """
    title = document.title if len(document.title.split()) <= MOST_TITLE_WORDS else ""
    of_title = f" of {title}" if title else ""
    listed = _LISTED.match(document.text, span.start, span.end)
    if listed:
        names = re.sub(r" ?\(.*?\)", "()", listed[1] or listed[2])
        text = _read_plain(document.text[listed.end() : span.end])
        return f"{names}{of_title} - {_capitalise(text).rstrip('.;')}."
    entry, text = _find_entry(document.text, span)
    if entry:
        text = re.sub(rf"^{re.escape(entry)}\([^()]*\)(?::| --?) ", "", text)
        if text[-1:].isalnum() and document.text.startswith("\n\n", span.end):
            text += "."
        return f"{entry}(){of_title} - {_capitalise(text)}"
    if text.startswith(f"{document.title} - ") and text[-1].isalnum():
        return f"{text}."
    name = find_name(document.title)
    if name and not title and span.start < OPENING_CHARACTERS and lacks_subject(text):
        return f"{name} - {text}"
    return _THIS_DOCUMENT.sub(lambda found: f"{found[0][0]}he {title} ", text) if title else text


def include_subject(document: Document, span: Span) -> Span:
    """Return the span of a sentence from the line before it on, if that line names its subject."""
    entry = _match_line_before(document.text, span.start)
    return Span(span.doc_id, entry.start(), span.end) if entry else span


def find_listed(text: str) -> Iterator[tuple[int, int]]:
    """Find the lines of lists that explain a name: the start and the end of each in `text`.

    An explanation goes on below its line, up to a blank line, the next name or a full stop.
    """
    for found in _LISTED.finditer(text):
        end = _find_line_end(text, found.end())
        while end < found.end() + MOST_ENTRY_CHARACTERS and not text[found.end() : end].rstrip().endswith("."):
            line = text[end + 1 : _find_line_end(text, end + 1)]
            if not line.strip() or _LISTED.match(line):
                break
            end += 1 + len(line)
        yield found.start(), found.end() + len(text[found.end() : end].rstrip())


def _find_line_end(text: str, start: int) -> int:
    place = text.find("\n", start)
    return len(text) if place < 0 else place


def _find_entry(text: str, span: Span) -> tuple[str, str]:
    """Find the name that a sentence explains, empty if there is none, and the sentence on one line."""
    sentence = text[span.start : span.end]
    first, _, rest = sentence.partition("\n")
    entry = _ENTRY.match(first) if rest else None
    if entry:
        sentence = rest
    else:
        entry = _match_line_before(text, span.start)
    return entry[1] if entry else "", _read_plain(sentence)


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _read_plain(text: str) -> str:
    """Read a text on one line, without the marks of a manual."""
    return _MARKS.sub(lambda found: found["term"] or found["code"] or found["link"] or "", " ".join(text.split()))


def _match_line_before(text: str, place: int) -> re.Match[str] | None:
    """Match the line before a place, if it opens an entry.

    A blank line may stand below the line of a class, and below any line if the place is indented.
    """
    first = max(0, place - MOST_ENTRY_CHARACTERS)
    end = first + len(text[first:place].rstrip())
    line_ends = text.count("\n", end, place)
    start = text.rfind("\n", first, end) + 1
    entry = _ENTRY.match(text, start, end) if line_ends and (start or not first) else None
    if entry is None:
        return None
    is_class = entry[1].rpartition(".")[2][:1].isupper()
    return entry if line_ends == 1 or is_class or text[place - 1] in " \t" else None
