"""Words in common: which stretches of the documents a text by a model rests on."""

import re
from collections.abc import Sequence

from keystone.generation.context.tokens import FIRST_WIDE_CHARACTER
from keystone.generation.rules.words import find_content_words

STEM_LETTERS = 6
"""Words count as equal if they share this number of first letters."""
LEAST_SHARED = 2
"""How many words a sentence shares at least with a stretch that it rests on, if it has as many."""
LEAST_SHARE = 0.3
"""The least share of the words of a stretch, or of the sentence if it is shorter, that both have."""
MOST_STRETCHES = 3
"""The most stretches that one sentence rests on."""

_NUMBER = re.compile(r"\d+")


def find_parts(text: str) -> frozenset[str]:
    """Find the parts by which texts are compared: stems of content words, numbers, and each wide character."""
    stems = (word[:STEM_LETTERS] for word in find_content_words(text))
    wide = (letter for letter in text if letter >= FIRST_WIDE_CHARACTER and letter.isalpha())
    return frozenset([*stems, *_NUMBER.findall(text), *wide])


def find_support(sentence: str, stretches: Sequence[frozenset[str]]) -> list[int]:
    """Find the places of the stretches that a sentence rests on, the best first; empty if there are none.

    The stretch that shares the most words comes first. Another one follows as long as it holds `LEAST_SHARED` words of
    the sentence that no stretch before it holds. Ties go to the earlier stretch.
    """
    words = find_parts(sentence)
    left, found = set(words), list[int]()
    while stretches and len(found) < MOST_STRETCHES:
        best = max(range(len(stretches)), key=lambda place: (len(left & stretches[place]), -place))
        shared, least = len(left & stretches[best]), min(LEAST_SHARED, len(words))
        share = len(words & stretches[best]) / max(1, min(len(words), len(stretches[best])))
        if not shared or shared < least or share < LEAST_SHARE:
            break
        found.append(best)
        left -= stretches[best]
    return found
