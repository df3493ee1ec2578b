"""The sentence of a cited passage that supports a sentence of an answer, found by their words in common.

The module also says when to doubt an answer by rules: rules choose the closest sentences even if none fits.
"""

import math
import re
from collections.abc import Sequence

from keystone.generation.rules.words import find_terms, make_weigher
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.types import Document, Embedding, Span
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.words import find_stems

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
