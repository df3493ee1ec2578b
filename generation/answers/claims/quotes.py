"""Quotes: their place in a document, and the segments that hold them. No model and no embedding takes part."""

import re
from collections.abc import Sequence

from indexing.types import Document, Span

LEAST_QUOTE_CHARACTERS = 15
"""The fewest characters of a quote without white space. A shorter one could stand anywhere."""
MOST_QUOTE_CHARACTERS = 2000
"""The most characters of a quote. A longer one is no quote of one statement."""
_ALIKE = (
    "'\"`\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u00ab\u00bb",
    "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212",
    "<\uff1c\ufe64\u2039",
    "[\uff3b\u27e6",
)
"""Characters that count as one: quotes, dashes, and the brackets that `generation.context.delimit` changes."""
_FORMS = {character: f"[{re.escape(alike)}]" for alike in _ALIKE for character in alike} | {
    "\u2026": r"(?:\u2026|\.\.\.)"
}


def find_quote(document: Document, spans: Sequence[Span], quote: str) -> Span | None:
    """Find the first place of a quote within these stretches of a document; None if it stands in none of them.

    White space of any length counts as one space, and the characters of a group in `_ALIKE` count as the same. All
    else must be equal, capitals included. None also for a quote that is too short or too long.
    """
    words = quote.split()
    if len("".join(words)) < LEAST_QUOTE_CHARACTERS or len(quote) > MOST_QUOTE_CHARACTERS:
        return None
    pattern = re.compile(r"\s+".join("".join(_FORMS.get(c, re.escape(c)) for c in word) for word in words))
    for span in spans:
        if span.doc_id == document.id and (found := pattern.search(document.text, span.start, span.end)):
            return Span(document.id, found.start(), found.end())
    return None


def find_quoted_segments(document: Document, quote: Span) -> tuple[str, ...]:
    """Find the ids of the fewest segments that hold a quote, the one that holds most of it first.

    If several hold as much, the one with the quote nearest to its middle is first, then the earlier one. Empty if no
    segment touches the quote.
    """
    middle = quote.start + quote.end
    near = [one for one in document.segments if one.span.start < quote.end and quote.start < one.span.end]
    near.sort(key=lambda one: abs(one.span.start + one.span.end - middle))
    left, found = set(range(quote.start, quote.end)), list[str]()
    while near:
        best = max(near, key=lambda one: len(left.intersection(range(one.span.start, one.span.end))))
        held = left.intersection(range(best.span.start, best.span.end))
        if not held:
            break
        found.append(best.id)
        left -= held
    return tuple(found)
