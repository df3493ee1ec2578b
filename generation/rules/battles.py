"""Battles without a model: the better answer says more about the words of the request. It cannot tell what is true."""

from typing import Literal

from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.words import find_stems

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
