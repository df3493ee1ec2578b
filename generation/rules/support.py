"""The support of sentences by their sources, and doubt about answers by rules, judged by words without a model.

Words cannot tell a claim from its denial, and do not know synonyms. So `full` promises no more than that all numbers,
all names and most of the rare words of a sentence stand in its sources. An answer by rules is to be doubted because
rules choose the closest sentences even if none fits.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from keystone.generation.rules.words import find_names, find_numbers, find_terms, find_word_forms
from keystone.generation.types import Support
from keystone.indexing.types import Embedding
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.words import find_stems

FULL_SHARE = 0.5
"""The least share of a sentence's weight that full support covers."""
PARTIAL_SHARE = 0.25
"""The least share of a sentence's weight that partial support covers."""

_GIVEN = (
    r"(?:(?:provided|given|cited|supplied|available|retrieved|selected|listed|numbered|above|context|source|reference)"
    r"\s+)"
)
"""The words before "documents" and the like that leave no doubt that a sentence is about its sources."""
_SOURCE = r"(?:reference|document|source|passage|text|excerpt|material)"
_SOURCES = rf"(?:{_GIVEN}?{_SOURCE}s|{_GIVEN}(?:{_SOURCE}|context))"
_ONE = rf"(?:{_SOURCE}|context)"
_ONE_GIVEN = rf"{_ONE}\s+(?:provided|given|supplied|above)"
_NUMBER = r"\[?\d{1,3}\]?"
_NUMBERED = rf"{_SOURCE}s?\s+{_NUMBER}(?:(?:,\s*|\s+)(?:and\s+)?{_NUMBER})*"
_TELL = r"(?:say|state|mention|describe|discuss|explain|address|tell|answer|specify|cover|detail)(?:e?s)?"
_SAY = rf"(?:{_TELL}|(?:name|give|provide|offer|contain|hold|include|ha(?:s|ve))(?:e?s)?)"
_NOT = r"do(?:es)?\s*(?:not|n't|n\u2019t)\s+(?:\w+\s+)?"
_LITTLE = r"\s+(?:\w+\s+)?(?:little|nothing|no|hardly|scarcely)\b"
_ABSENCE = re.compile(
    rf"""\b(?:
      (?:(?:the|these)\s+{_SOURCES}\b[^.;,]{{0,40}}?\b|the\s+{_ONE_GIVEN}\s+)
        (?:{_NOT}{_SAY}\b|{_SAY}{_LITTLE}|(?:is|are|remains?)\s+silent\b)
      |(?:the\s+{_ONE}|{_NUMBERED})\s+(?:{_NOT}(?:{_TELL}|give)\b|{_TELL}{_LITTLE}|(?:is|are|remains?)\s+silent\b
        |{_NOT}{_SAY}\s+(?:\w+\s+){{0,2}}(?:information|details?|evidence)\b)
      |no(?:ne\s+of\s+the(?:se)?)?\s+(?:{_SOURCES}|{_SOURCE})\s+(?:\w+\s+)?{_SAY}\b
      |(?:not|nothing)\s+(?:\w+\s+){{0,2}}(?:in|by|from)\s+(?:the|these)\s+(?:{_SOURCES}|{_ONE_GIVEN})\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_CONTRAST = re.compile(r"\b(?:but|however|yet|though|although|while|whereas|instead|only)\b", re.IGNORECASE)


_NO_REPORT = r"(?:sources?|documents?|passages?|texts?|articles?)"
_PAPER = rf"(?:{_NO_REPORT}|reports?)"
_PAPERS = rf"(?:\w+\s+)?{_PAPER}"
_GAP_VERB = r"(?:say|tell|state|mention|describe|explain|name|give|discuss)"
_DO_NOT = r"do\s*(?:not|n't|n\u2019t)\s+(?:\w+\s+)?"
_GAP = re.compile(
    rf"""(?:
      (?:The|These)\s+{_GIVEN}?(?:
        {_PAPER}\s+(?:{_DO_NOT}{_GAP_VERB}|{_GAP_VERB}\s+(?:neither|nothing|no|little))
        |{_NO_REPORT}\s+{_DO_NOT}(?:show|report))
      |(?:No|None\s+of\s+the(?:se)?)\s+{_GIVEN}?(?:{_PAPER}\s+{_GAP_VERB}|{_NO_REPORT}\s+(?:show|report))s?
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


def denies_sources(sentence: str, request: str = "") -> bool:
    """Return whether a sentence names the sources and denies something, without a contrast or a number of its own.

    Numbers of the `request` are none of its own. It may have several clauses, so it may still say more than that the
    sources lack something.
    """
    told = bool(_NAMED.search(sentence)) and denies(sentence)
    return told and find_numbers(sentence) <= find_numbers(request) and not _CONTRAST.search(sentence)


def denies(sentence: str) -> bool:
    """Return whether a sentence denies something."""
    return bool(_DENIED.search(sentence))


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
