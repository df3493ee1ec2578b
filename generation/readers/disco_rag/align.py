"""Where the units that a model copied from a chunk stand in it."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from keystone.generation.context.tokens import FIRST_WIDE_CHARACTER

LOOKAHEAD_WORDS = 40
"""How many words of the chunk a copy may leave out in one place."""

_WORD = re.compile(rf"[{FIRST_WIDE_CHARACTER}-\U0010ffff]|[^\W{FIRST_WIDE_CHARACTER}-\U0010ffff]+")


class Word(NamedTuple):
    """A word in small letters, and its place in the text."""

    text: str
    start: int
    end: int


class Alignment(NamedTuple):
    """The start of each unit in a text (None: none of its words stands there), and the words in common in percent."""

    starts: list[int | None]
    percent: float


def align_units(text: str, units: Sequence[str]) -> Alignment:
    """Find the units in a text, in their order. The starts rise strictly, and the first one is 0.

    Words are compared without case and punctuation. The time is linear in the length of both.
    """
    words = _find_words(text)
    own = [(place, word.text) for place, unit in enumerate(units) for word in _find_words(unit)]
    starts: list[int | None] = [None] * len(units)
    at = matched = 0
    for number, (place, word) in enumerate(own):
        if at == len(words):
            break
        following = own[number + 1][1] if number + 1 < len(own) else ""
        if (found := _find_place(words, at, word, following)) is None:
            continue
        if starts[place] is None:
            starts[place] = _skip_punctuation(text, words[found - 1].end, words[found].start) if matched else 0
        at, matched = found + 1, matched + 1
    return Alignment(starts, 200 * matched / (len(words) + len(own) or 1))


def _find_words(text: str) -> list[Word]:
    return [Word(match[0].casefold(), match.start(), match.end()) for match in _WORD.finditer(text)]


def _find_place(words: Sequence[Word], at: int, word: str, following: str) -> int | None:
    """Find a word of a copy from the place `at` on: there, or later if the copy's next word follows it there too."""
    if words[at].text == word:
        return at
    for place in range(at + 1, min(at + LOOKAHEAD_WORDS, len(words) - 1)):
        if words[place].text == word and words[place + 1].text == following:
            return place
    return None


def _skip_punctuation(text: str, least: int, start: int) -> int:
    """Move a word's start to the left over the punctuation before it, but not beyond `least`."""
    while start > least and not text[start - 1].isspace():
        start -= 1
    return start
