"""The words of sentences, by which they are compared with their sources.

Terms are stems of words, numbers and names. A quote is the sentence of a source whose terms are closest to those of a
sentence.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from unicodedata import normalize

from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.types import Document, Span
from keystone.indexing.words import find_stems

MOST_KEPT_TEXTS = 1024
"""The texts whose words are kept. Each segment is compared with many sentences."""
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
    words = _list_words(text)
    names = (word for place, word in enumerate(words) if (place and word[0].isupper()) or _FORMAL.match(word))
    return {_fold(name) for name in names if len(name) > 1}


@lru_cache(MOST_KEPT_TEXTS)
def find_word_forms(text: str) -> frozenset[str]:
    """Find all words of a text in the form of `find_names`."""
    return frozenset(map(_fold, _list_words(text)))


def find_terms(text: str) -> frozenset[str]:
    """Find the terms of a text: stems of its content words, numbers, and formal words in whole."""
    formal = {_fold(word) for word in _list_words(text) if _FORMAL.match(word)}
    return frozenset(find_stems(text) | find_numbers(text) | formal)


def _list_words(text: str) -> list[str]:
    """The words of a text with composed accents (NFC), so that both spellings of a letter agree."""
    return _WORD.findall(normalize("NFC", text))


def _fold(word: str) -> str:
    return word.lower().removesuffix("s")


def make_weigher(texts: Sequence[AbstractSet[str]]) -> Callable[[Iterable[str]], float]:
    """Make a function that sums `log((n + 1) / (df + 0.5))` over distinct terms: df of n `texts` hold the term."""
    counts, n = Counter(term for terms in texts for term in terms), len(texts)
    return lambda terms: math.fsum(math.log((n + 1) / (counts[term] + 0.5)) for term in terms)


MOST_SENTENCES = 2
"""The most sentences in a row that support one sentence of an answer."""
_SENTENCE_END = re.compile(r"""[.!?…:;。！？।؟]['")\]’”»`*_]*\s*\Z""")


def find_quote(sentence: str, document: Document, segment_id: str) -> Span | None:
    """Find the sentence of a cited segment, or the two in a row, whose terms are closest to those of a sentence.

    Closeness is the cosine of their terms, each weighted by its rarity in the segment. Ties go to one sentence before
    two, then to the first. A heading is quoted with the sentence after it, or alone if the segment has no sentence. A
    document can be a segment itself. None if the document lacks the segment, or if the segment shares no term with the
    sentence.
    """
    spans = {one.id: one.span for one in document.segments}
    segment = spans.get(segment_id) or (Span(document.id, 0, len(document.text)) if segment_id == document.id else None)
    if segment is None:
        return None
    parts = split_sentences(document.text[segment.start : segment.end])
    terms = [find_terms(document.text[segment.start + start : segment.start + end]) for start, end in parts]
    wanted, weigh = find_terms(sentence), make_weigher(terms)
    ends = [
        bool(_SENTENCE_END.search(document.text[segment.start + start : segment.start + end])) for start, end in parts
    ]
    best, most = None, 0.0
    for count in range(1, MOST_SENTENCES + 1):
        for first in range(len(parts) - count + 1):
            if any(ends) and not ends[first + count - 1]:
                continue
            own = frozenset[str]().union(*terms[first : first + count])
            cosine = weigh(wanted & own) / math.sqrt(weigh(wanted) * weigh(own) or 1)
            if cosine > most:
                start, end = parts[first][0], parts[first + count - 1][1]
                best, most = Span(document.id, segment.start + start, segment.start + end), cosine
    return best
