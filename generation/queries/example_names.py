"""Proper nouns that a narrative gives as examples. Expansion by them leads the search astray (paper, 2.1.3)."""

import re

from keystone.generation.rules.words import INTERROGATIVES
from keystone.indexing.corpora.segments import split_sentences

_CUE = re.compile(
    r"\b(?:such\s+as|(?<!would\s)(?<!['\u2019]d\s)like(?!\s+to\b)|including|for\s+(?:example|instance)|namely"
    r"|especially|e\.g\.?)(?!\w)",
    re.IGNORECASE,
)
_END = re.compile(rf"[;:)]|\b(?:{'|'.join(INTERROGATIVES)})\b", re.IGNORECASE)
_CAPITALISED = r"[^\W\d_a-z][\w'\u2019.&-]*\w"
_NAME = re.compile(rf"\b{_CAPITALISED}(?:\s+(?:(?:of|the|de|van|von|for)\s+)*{_CAPITALISED})*")
_POSSESSIVE = re.compile(r"['\u2019]s$")
_PRONOUN = re.compile(r"I['\u2019](?:m|d|ll|ve)")


def find_example_names(narrative: str) -> tuple[str, ...]:
    """Find the capitalised names after a cue such as `like` or `for example`, in order.

    The examples end with their sentence, with a semicolon, colon or bracket, or before a question word.
    """
    found: dict[str, str] = {}
    for start, end in split_sentences(narrative):
        for cue in _CUE.finditer(narrative, start, end):
            for name in _NAME.findall(_END.split(narrative[cue.end() : end], maxsplit=1)[0]):
                if not _PRONOUN.fullmatch(name):
                    name = _POSSESSIVE.sub("", name)
                    found.setdefault(name.casefold(), name)
    return tuple(found.values())
