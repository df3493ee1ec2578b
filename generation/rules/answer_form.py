"""Judgments of answers by rules: gaps, openings, sentences that point back, repetition, and battles.

All but battles are for English. A battle goes to the answer that says more about the words of the request. Rules cannot
tell what is true.
"""

import re
from collections.abc import Sequence
from typing import Literal

from keystone.indexing.corpora.segments import split_sentences
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
    """Return whether an answer opens with words of the question, no gap and no pronoun. Rules can tell no more."""
    if not sentences or admits_gap(sentences[0]) or points_back(sentences[0]):
        return False
    asked = find_stems(question)
    return len(asked & find_stems(sentences[0])) >= min(LEAD_STEMS, max(1, len(asked)))


ENOUGH_SENTENCES = 3
"""So many sentences about a word of the request cover it; more count nothing."""
LEAST_DIFFERENCE = 0.05
"""A smaller difference between two coverages is a tie."""
LEAST_COVERAGE = 0.05
"""If two tied answers cover less, both are bad."""


def compare_coverage(question: str, a: str, b: str) -> Literal["A", "B", "Tie", "Tie (Both Bad)"]:
    """Compare two answers by their coverage of the request: see `measure_coverage`."""
    words = find_stems(question)
    both = measure_coverage(words, a), measure_coverage(words, b)
    if abs(both[0] - both[1]) >= LEAST_DIFFERENCE:
        return "A" if both[0] > both[1] else "B"
    return "Tie" if max(both) >= LEAST_COVERAGE else "Tie (Both Bad)"


def measure_coverage(words: set[str], answer: str) -> float:
    """Measure the share of the request's words that an answer covers, from 0 to 1.

    A word is covered in full by `ENOUGH_SENTENCES` different sentences with it, and in part by fewer. A sentence counts
    only if it has at least as many words that are not in the request, so an answer wins nothing by repeating it.
    """
    sentences = (answer[start:end] for start, end in split_sentences(answer))
    told = list(dict.fromkeys(frozenset(find_stems(one)) for one in sentences))
    told = [one for one in told if len(one - words) >= len(one & words)]
    if not words:
        return 0.0
    return sum(min(1.0, sum(word in one for one in told) / ENOUGH_SENTENCES) for word in words) / len(words)
