"""Sentences of documents for extractive answers: their choice, their groups of equal meaning, their utilities."""

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusion.closest import find_closest_segments
from generation.context.topic import TopicContext
from generation.rules.words import find_content_words
from indexing.corpora.segments import split_sentences
from indexing.types import Document, Span
from indexing.vectors.types import Vectors

SAME_COSINE = 0.95
"""The least cosine of two sentences that say the same."""
RELATED_COSINE = 0.25
"""The cosine of a sentence and a query from which on the sentence has a utility."""
MOST_CANDIDATE_SENTENCES = 64
"""The most sentences that are embedded for a topic. Embedding is most of the work of an answer."""
WORDS_WEIGHT = 0.6
"""The weight of the words in common. The cosine of the segment has weight 1."""
STEM_LETTERS = 6
"""Words count as equal if they share this number of first letters."""

_PLAIN = re.compile(r"""[("'\u201c\u2018]*[^\W\d_]+(?:['\u2019-][^\W\d_]+)*[)"'\u201d\u2019,.;:!?]*""")


def find_sentences(context: TopicContext) -> list[Span]:
    """Find the sentences of each document's closest segment to each query, in the order of the documents."""
    spans: list[Span] = []
    for row, document in context.documents.items():
        best, _ = find_closest_segments(context.query_vectors, context.segments[row])
        chosen = [document.segments[number].span for number in sorted(set(best.tolist()))]
        spans += [
            Span(document.id, start, end)
            for start, end in split_sentences(document.text)
            if any(s.start <= start and end <= s.end for s in chosen) and is_prose(document.text[start:end])
        ]
    return spans


def choose_likely(context: TopicContext, spans: Sequence[Span], most: int = MOST_CANDIDATE_SENTENCES) -> list[Span]:
    """Choose the `most` sentences that are likely to be close to a query, in their order, before any is embedded.

    The queries choose in turn, each its best sentence that is left. The value of a sentence has two parts: the mean
    cosine of the segments that hold it, and the words that it shares with the query (the cosine of their rare words).

    Measured on the demo's judged topics: of the sentences chosen from 64 likely ones, 72 % are from relevant documents.
    Of the sentences chosen from all, 69 % do.
    """
    if len(spans) <= most:
        return list(spans)
    own = context.by_id
    span_stems = [_find_stems(own[span.doc_id][0].text[span.start : span.end]) for span in spans]
    query_stems = [_find_stems(query.dense_text) for query in context.queries]
    counts = Counter(word for stems in span_stems for word in stems)
    weight = {
        word: math.log((len(spans) + 1) / (counts[word] + 0.5)) ** 2
        for stems in (*span_stems, *query_stems)
        for word in stems
    }

    def weigh(stems: set[str]) -> float:
        return math.fsum(weight[word] for word in stems)  # the same in any order, because sets have none

    def compare(one: set[str], other: set[str]) -> float:
        return weigh(one & other) / math.sqrt(weigh(one) * weigh(other) or 1)

    shared = np.array([[compare(one, other) for other in span_stems] for one in query_stems])
    near = np.empty_like(shared)
    for place, span in enumerate(spans):
        document, vectors = own[span.doc_id]
        near[:, place] = (context.query_vectors @ vectors[find_holding_segments(document, span)].T).mean(axis=1)
    chances = near + WORDS_WEIGHT * shared
    turn = np.argsort(np.argsort(-chances, axis=1, kind="stable"), axis=1, kind="stable").min(axis=0)
    chosen = np.lexsort((-chances.max(axis=0), turn))[:most]
    return [spans[place] for place in sorted(chosen.tolist())]


def _find_stems(text: str) -> set[str]:
    return {word[:STEM_LETTERS] for word in find_content_words(text)}


def find_holding_segments(document: Document, span: Span) -> list[int]:
    """Find the numbers of the segments that hold a sentence; all numbers if none holds the whole sentence."""
    found = [
        number
        for number, segment in enumerate(document.segments)
        if segment.span.start <= span.start and span.end <= segment.span.end
    ]
    return found or list(range(len(document.segments)))


def is_prose(sentence: str) -> bool:
    """Return whether a stretch of text reads as a sentence.

    It has 6 to 60 words, ends with `.`, `!` or `?`, and four fifths of its parts are plain words.
    """
    tokens = sentence.split()
    plain = sum(bool(_PLAIN.fullmatch(token)) for token in tokens)
    return 6 <= len(tokens) <= 60 and sentence[0].isalnum() and sentence[-1] in ".!?" and plain >= 0.8 * len(tokens)


def group_same_sentences(vectors: Vectors) -> list[list[int]]:
    """Group sentences that say the same: their cosine with the group's first is at least 0.95.

    `vectors` is float32[sentences, d]. Returns the places of each group's sentences, in order.
    """
    groups: list[list[int]] = []
    for number in range(len(vectors)):
        heads = vectors[[group[0] for group in groups]]
        same = np.flatnonzero(heads @ vectors[number] >= SAME_COSINE) if groups else np.empty(0, np.int64)
        if same.size:
            groups[int(same[0])].append(number)
        else:
            groups.append([number])
    return groups


def compute_utilities(queries: Vectors, candidates: Vectors) -> NDArray[np.float64]:
    """Compute the utility of each candidate for each query: float64[queries, candidates], 0 to 3 as UMBRELA grades.

    A cosine of 0.25 gives 0, a cosine of 1 gives 3, and values between are linear. `queries` is float32[queries, d],
    and `candidates` float32[candidates, d].
    """
    cosines = (queries @ candidates.T).astype(np.float64)
    return np.clip((cosines - RELATED_COSINE) / (1 - RELATED_COSINE), 0, 1) * 3
