"""The words of sentences, by which they are compared with their sources, and the support that words alone show.

Terms are stems of words, numbers and names. Words cannot tell a claim from its denial, and do not know synonyms. So
`full` promises no more than that all numbers, all names and most of the rare words of a sentence stand in its sources.
The module also finds the sentence of a source that supports one of an answer, and says when to doubt an answer: rules
choose the closest sentences even if none fits.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache

from keystone.generation.types import Support
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.types import Document, Embedding, Span
from keystone.indexing.vectors.embed import embed_queries
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


FULL_SHARE = 0.5
"""The least share of a sentence's weight that full support covers."""
PARTIAL_SHARE = 0.25
"""The least share of a sentence's weight that partial support covers."""

_SOURCES = r"(?:references?|documents?|sources?|passages?|texts?|excerpts?|materials?|context)"
_SAY = (
    r"(?:say|state|mention|describe|discuss|explain|address|tell|answer|specify|cover|detail|name|give|provide|offer"
    r"|contain|hold|include|ha(?:s|ve))(?:e?s)?"
)
_ABSENCE = re.compile(
    rf"""\b(?:
      {_SOURCES}\b[^.;,]{{0,40}}?\b(?:
        do(?:es)?\s*(?:not|n't|n\u2019t)\s+(?:\w+\s+)?{_SAY}\b
        |{_SAY}\s+(?:\w+\s+)?(?:little|nothing|no|hardly|scarcely)\b
        |(?:is|are|remains?)\s+silent\b)
      |no(?:ne\s+of\s+the(?:se)?)?\s+(?:\w+\s+)?{_SOURCES}\s+(?:\w+\s+)?{_SAY}\b
      |(?:not|nothing)\s+(?:\w+\s+){{0,2}}(?:in|by|from)\s+(?:the|these)\s+(?:\w+\s+)?{_SOURCES}\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_CONTRAST = re.compile(r"\b(?:but|however|yet|though|although|while|whereas|instead|only)\b", re.IGNORECASE)


_PAPER = r"(?:sources?|documents?|passages?|texts?|reports?|articles?)"
_PAPERS = rf"(?:\w+\s+)?{_PAPER}"
_TELL = r"(?:say|tell|state|report|mention|describe|explain|name|give|show|discuss)"
_GAP = re.compile(
    rf"""(?:
      (?:The|These)\s+{_PAPERS}\s+(?:do\s*(?:not|n't|n\u2019t)\s+(?:\w+\s+)?{_TELL}|{_TELL}\s+(?:neither|nothing|no|little))
      |(?:No|None\s+of\s+the(?:se)?)\s+{_PAPERS}\s+{_TELL}s?
    )\b[^,;:]*""",
    re.IGNORECASE | re.VERBOSE,
)

_NAMED = re.compile(rf"\b(?:the|these|no|none of the(?:se)?)\s+{_PAPERS}\b", re.IGNORECASE)
_DENIED = re.compile(r"\b(?:not|no|nothing|neither|none|nor|never|cannot)\b|n['\u2019]t\b", re.IGNORECASE)


def tells_gap(sentence: str) -> bool:
    """Return whether a sentence is a single clause, which says that the sources do not tell something.

    Stricter than `says_nothing`, since such a sentence is neither checked nor given citations.
    """
    return bool(_GAP.fullmatch(sentence.strip()))


def denies_sources(sentence: str) -> bool:
    """Return whether a sentence names the sources and denies something, without a number and without a contrast.

    It may have several clauses, so it may still say more than that the sources lack something.
    """
    named, denied = _NAMED.search(sentence), _DENIED.search(sentence)
    return bool(named and denied) and not find_numbers(sentence) and not _CONTRAST.search(sentence)


def says_nothing(sentence: str) -> bool:
    """Return whether a sentence says only that the sources lack something, without "but" or a like word."""
    return bool(_ABSENCE.search(sentence)) and not _CONTRAST.search(sentence)


def rate_support(sentence: str, source: str, weigh: Callable[[Iterable[str]], float]) -> Support:
    """Rate how far a source supports a sentence. `weigh` sums the weights of terms.

    The support is full if the source holds all numbers and names of the sentence and `FULL_SHARE` of the weight of its
    terms. It is none below `PARTIAL_SHARE`.
    """
    terms = find_terms(sentence)
    share = weigh(terms & find_terms(source)) / (weigh(terms) or 1.0)
    if share < PARTIAL_SHARE:
        return "none"
    return "full" if share >= FULL_SHARE and not find_added(sentence, source) else "partial"


def find_added(sentence: str, source: str) -> set[str]:
    """Find the numbers and names of a sentence that its source does not hold."""
    return find_numbers(sentence) - find_numbers(source) | find_names(sentence) - find_word_forms(source)


MOST_SENTENCES = 2
"""The most sentences in a row that support one sentence of an answer."""
_SENTENCE_END = re.compile(r"""[.!?…:;。！？।؟]['")\]’”»`*_]*\s*\Z""")


def find_quote(sentence: str, document: Document, segment_id: str) -> Span | None:
    """Find the sentence of a cited segment, or the two in a row, whose terms are closest to those of a sentence.

    Close is the cosine of their terms, each weighted by its rarity in the segment. Of equal ones, the first and shorter
    one counts. A heading is quoted with the sentence after it, or alone if the segment has no sentence. A document can
    be a segment itself. None if the document lacks the segment, or if the segment shares no term with the sentence.
    """
    spans = {one.id: one.span for one in document.segments}
    segment = spans.get(segment_id) or (Span(document.id, 0, len(document.text)) if segment_id == document.id else None)
    if segment is None:
        return None
    parts = split_sentences(document.text[segment.start : segment.end])
    terms = [find_terms(document.text[segment.start + start : segment.start + end]) for start, end in parts]
    wanted, weigh = find_terms(sentence), make_weigher(terms)
    ends = [bool(_SENTENCE_END.search(document.text[segment.start : segment.start + end])) for _, end in parts]
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


LEAST_COSINE = 0.4
"""The least cosine of a narrative and the closest sentence of its answer, by the local model.

Of 35 questions about a manual of software the lowest was 0.47. Of 23 questions about other subjects two were above 0.4.
"""
LEAST_SHARE = 0.25
"""The least share of a narrative's content words that stand in its answer."""
DOUBT = "No sentence of these documents seems to answer the question."


def is_doubtful(narrative: str, sentences: Sequence[str], embedding: Embedding) -> bool:
    """Tell whether none of an answer's sentences seems to answer its narrative. No sentences leave no doubt.

    The words decide, and with the local embedding model also the cosines. Those of other models differ too much.
    """
    if not sentences:
        return False
    asked = find_stems(narrative)
    if len(asked & find_stems(" ".join(sentences))) < LEAST_SHARE * len(asked):
        return True
    if not embedding.is_local:
        return False
    vectors = embed_queries(embedding, [narrative, *sentences])
    return bool((vectors[1:] @ vectors[0]).max() < LEAST_COSINE)
