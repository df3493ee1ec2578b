"""The form of an English answer by rules: gaps that it admits, its opening, sentences that point back, repetition."""

import re
from collections.abc import Sequence

from keystone.indexing.words import find_stems

REPEATED_SHARE = 0.8
"""A sentence repeats an earlier one that has at least this share of its stems."""
LEAST_STEMS = 4
"""The fewest stems by which a sentence can repeat another."""
LEAD_STEMS = 2
"""The fewest stems that an opening shares with what was asked, if this has so many."""

_SOURCES = r"(?:documents?|sources?|passages?|pages?|texts?|material|evidence|collection|corpus|excerpts?|segments?)"
_TELL = (
    r"(?:address|answer|compare|contain|cover|define|describe|detail|discuss|document|explain|give|include|indicate|"
    r"list|mention|name|offer|present|provide|recommend|report|rank|say|settle|show|specify|state|suggest|tell|treat)"
)
_GAP = re.compile(
    rf"\b{_SOURCES}\b[^.;]{{0,40}}?\b(?:do|does|did)(?:\s+not|n['\u2019]t)\s+(?:\w+ly\s+|even\s+|also\s+)?{_TELL}\b"
    rf"|\b(?:no|none\s+of\s+(?:the|these))\s+(?:\w+\s+)?{_SOURCES}\b[^.;]{{0,40}}?\b{_TELL}(?:s|es|d|ed)?\b"
    rf"|\bnot\s+(?:\w+\s+)?(?:addressed|answered|compared|covered|described|discussed|documented|explained|found|given|"
    rf"mentioned|named|shown|stated)\s+(?:in|by|there\b|here\b)(?:\s+(?:the|these|any|my))?(?:\s+\w+){{0,2}}\s+{_SOURCES}\b"
    rf"|\b{_SOURCES}\b[^.;]{{0,40}}?\b(?:(?:is|are|remains?)\s+silent|leaves?\b[^.;]{{0,60}}\bopen)\b"
    rf"|\bnothing\s+(?:\w+\s+){{0,3}}in\s+(?:the|these)\s+(?:\w+\s+)?{_SOURCES}\b",
    re.IGNORECASE,
)
"""A statement that the sources do not tell something."""
_POINTING = re.compile(
    r"""["'(\u201c\u2018]*(?:
        it(?!\s+(?:can|could|is|may|might|seems|was|will|would)\b[^.;]{0,40}\b(?:to|that|whether)\b)
      |its|they|their|he|his|she|her|this|these|those(?!\s+(?:of|that|who|with)\b)
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""A first word that points at the sentence before."""


def admits_gap(sentence: str) -> bool:
    """Return whether a sentence says that the sources do not tell something."""
    return bool(_GAP.search(sentence))


def points_back(sentence: str) -> bool:
    """Return whether a sentence opens with a pronoun that stands for something in the sentence before it."""
    return bool(_POINTING.match(sentence.strip()))


def count_repeated(sentences: Sequence[str]) -> int:
    """Count the sentences most of whose content words an earlier sentence has."""
    stems = [find_stems(sentence) for sentence in sentences]
    return sum(
        len(own) >= LEAST_STEMS and any(len(own & earlier) >= REPEATED_SHARE * len(own) for earlier in stems[:place])
        for place, own in enumerate(stems)
    )


def leads(question: str, sentences: Sequence[str]) -> bool:
    """Return whether an answer opens on its subject: a statement in words of the question, no gap and no pronoun.

    Whether this is what was asked for, rules cannot tell.
    """
    if not sentences or admits_gap(sentences[0]) or points_back(sentences[0]):
        return False
    asked = find_stems(question)
    return len(asked & find_stems(sentences[0])) >= min(LEAD_STEMS, max(1, len(asked)))
