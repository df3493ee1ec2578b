"""Quotes: their place in a document, and the segments that hold them. No model and no embedding takes part."""

import re
from collections.abc import Callable, Sequence, Set
from typing import TypeVar

from keystone.indexing.types import Document, Segment, Span

T = TypeVar("T")

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
"""Characters that count as one: quotes, dashes, and the brackets that `keystone.generation.context.texts` changes."""
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


def find_quoted_segments(document: Document, quote: Span) -> list[Segment]:
    """Find the fewest segments that hold a quote, the one that holds most of it first; empty if none touches it.

    If several hold as much, the one with the quote nearest to its middle is first, then the earlier one.
    """
    characters = set(range(quote.start, quote.end))
    return _cover(
        characters,
        _list_nearest(document, quote, [quote]),
        lambda segment: characters.intersection(range(segment.span.start, segment.span.end)),
    )


def find_naming_segments(document: Document, quote: Span, spans: Sequence[Span], names: Set[str]) -> list[Segment]:
    """Find the fewest segments that hold these names: the one with most of them first, then the nearest.

    Only segments that overlap one of the stretches are searched. Names that none of them holds are passed over.
    """
    if not names:
        return []
    near = _list_nearest(document, quote, spans)
    return _cover(names, near, lambda segment: names & split_words(document.segment_text(segment)))


def _list_nearest(document: Document, quote: Span, spans: Sequence[Span]) -> list[Segment]:
    """List the segments that overlap one of the stretches, the one with the quote nearest to its middle first."""
    found = [one for one in document.segments if any(map(one.span.overlaps, spans))]
    return sorted(found, key=lambda one: abs(one.span.start + one.span.end - quote.start - quote.end))


def _cover(wanted: Set[T], segments: Sequence[Segment], find_held: Callable[[Segment], Set[T]]) -> list[Segment]:
    """Choose segments until no other one holds anything more that is wanted; the earlier one wins a tie."""
    held, chosen, left = [find_held(segment) for segment in segments], list[Segment](), set(wanted)
    while segments:
        best = max(range(len(segments)), key=lambda number: len(left & held[number]))
        if not left & held[best]:
            break
        chosen.append(segments[best])
        left -= held[best]
    return chosen


_TOKEN = re.compile(r"\w+(?:\.\w+)*")
_COMMA = re.compile(r"(?<=\d),(?=\d)")
_END = re.compile(r"[.?!:]\s")


def find_names(text: str) -> dict[str, str]:
    """Find the names and numbers of a text as they are written, by their form in `split_words`.

    A name is a word with a capital inside a sentence, or with a digit, a point or an underscore inside the word. A name
    with points inside, such as `os.path`, is several.
    """
    plain, end, names = _COMMA.sub("", text), 0, dict[str, str]()
    for token in _TOKEN.finditer(plain):
        begins = end == 0 or bool(_END.search(plain, end, token.start()))
        end = token.end()
        if _is_name(token[0], begins):
            names |= dict.fromkeys(_split(token[0]), token[0])
    return names


def split_words(text: str) -> set[str]:
    """Split a text into its words, without regard to case and to a final s."""
    return {part for token in _TOKEN.findall(_COMMA.sub("", text)) for part in _split(token)}


def _split(token: str) -> list[str]:
    return [part.removesuffix("s") for part in token.casefold().split(".")]


def _is_name(token: str, begins: bool) -> bool:
    """Whether a token is a name; a capital at the beginning of a sentence says nothing."""
    if any(character.isdigit() or character in "._" for character in token):
        return True
    return len(token) > 1 and any(character.isupper() for character in token[begins:])
