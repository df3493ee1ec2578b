"""The sentence of a cited passage that supports a sentence of an answer, found by their words in common."""

import math
import re

from keystone.generation.rules.terms import find_terms, make_weigher
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.types import Document, Span

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
