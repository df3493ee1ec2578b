"""English words that open a question or a request, and the terms by which sentences are compared with their sources.

Terms are stems of words, numbers and names. The words of a text come from `keystone.indexing.words`.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache

from keystone.indexing.words import find_stems

MOST_KEPT_TEXTS = 1024
"""The texts whose words are kept. Each segment is compared with many sentences."""
INTERROGATIVES = ("how", "what", "what's", "when", "where", "whether", "which", "who", "whom", "whose", "why")
"""Words that open a question."""

LEAD_IN = re.compile(
    r"""^(?:
      (?:(?:finally|specifically|additionally|moreover|furthermore|in\ addition|at\ the\ same\ time),?\s+)
    | (?:i|we|i'm|i\u2019m|i'd|i\u2019d|we're|we'd)\s+
        (?:(?:am|are|would|also|really|just|further|even|especially|particularly|specifically|keen|curious|eager|
           looking|trying|hoping|exploring|puzzled|interested|wondering|seeking|like|love|want|need|wish|hope|plan|know|wonder|have|
           understand|learning|about|in|on)\s+)+
    | (?:please|can\ you|could\ you|would\ you|tell\ me|show\ me|help\ me)\s+(?:please\s+|also\s+|about\s+)*
    | (?:to\s+)?(?:(?:deeply|better|fully|also|really|thoroughly)\s+)*
        (?:know|learn|learning|understand|understanding|see|find\ out|hear|explore|discover|explain|describe|discuss|
           compare|outline)(?:\s+(?:more|about|both))*\s+
    | (?:to\s+)?(?:(?:get|gain|have)\s+)?an?\s+(?:\w+\s+)?(?:understanding|overview|explanation|idea|picture)\s+of\s+
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""Phrases before the content of a sentence, such as "I want to know"."""


_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"\w+")
_FORMAL = re.compile(r"\w.*[A-Z_]|(?=.*[^\W\d]).*\d")
"""A word that is a name wherever it stands: with a capital, an underscore or a digit inside, such as `SharedMemory`."""


def find_numbers(text: str) -> set[str]:
    """Find the numbers of a text, as digits without commas. Numbers within words count."""
    return set(_NUMBER.findall(text.replace(",", "")))


def find_names(text: str) -> set[str]:
    """Find the names of a sentence, in lower case and without a final `s`.

    Each word with a capital is one, unless the sentence begins with it. Words with a digit, an underscore or a capital
    inside are names everywhere.
    """
    words = _WORD.findall(text)
    names = (word for place, word in enumerate(words) if (place and word[0].isupper()) or _FORMAL.match(word))
    return {_fold(name) for name in names if len(name) > 1}


@lru_cache(MOST_KEPT_TEXTS)
def find_word_forms(text: str) -> frozenset[str]:
    """Find all words of a text in the form of `find_names`."""
    return frozenset(map(_fold, _WORD.findall(text)))


def find_terms(text: str) -> frozenset[str]:
    """Find the terms of a text: stems of its content words, numbers, and formal words in whole."""
    formal = {_fold(word) for word in _WORD.findall(text) if _FORMAL.match(word)}
    return frozenset(find_stems(text) | find_numbers(text) | formal)


def _fold(word: str) -> str:
    return word.lower().removesuffix("s")


def make_weigher(texts: Sequence[AbstractSet[str]]) -> Callable[[Iterable[str]], float]:
    """Make a function that sums `log((n + 1) / (df + 0.5))` over terms: n `texts`, of which df hold the term."""
    counts, n = Counter(term for terms in texts for term in terms), len(texts)
    return lambda terms: math.fsum(math.log((n + 1) / (counts[term] + 0.5)) for term in terms)
