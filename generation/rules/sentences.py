"""Sentences of documents that an extractive answer may use: which are worth reading, and which say the same."""

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusion.closest import find_closest_segments
from generation.context.topic import TopicContext
from generation.rules.words import find_content_words
from indexing.corpora.segments import sentences
from indexing.types import Document, Span
from indexing.vectors.types import Vectors

SAME_COSINE = 0.95
RELATED_COSINE = 0.25
MOST_CANDIDATE_SENTENCES = 64
"""Sentences that are embedded for a topic, which is most of the work of an answer."""
WORDS_WEIGHT = 0.6
"""What words in common count where the cosine of the segment counts 1."""
STEM_LETTERS = 6

_PLAIN = re.compile(r"""[("'\u201c\u2018]*[^\W\d_]+(?:['\u2019-][^\W\d_]+)*[)"'\u201d\u2019,.;:!?]*""")


def find_sentences(context: TopicContext) -> list[Span]:
    """The sentences worth reading: those of each document's closest segment to each query, in document order."""
    spans: list[Span] = []
    for row, document in context.documents.items():
        best, _ = find_closest_segments(context.query_vectors, context.segments[row])
        chosen = [document.segments[number].span for number in sorted(set(best.tolist()))]
        spans += [
            Span(document.id, start, end)
            for start, end in sentences(document.text)
            if any(s.start <= start and end <= s.end for s in chosen) and is_prose(document.text[start:end])
        ]
    return spans


def choose_likely(context: TopicContext, spans: Sequence[Span], most: int = MOST_CANDIDATE_SENTENCES) -> list[Span]:
    """The sentences most likely to be close to a query, before any is embedded: each query's best in turn, in order.

    A sentence counts by the mean cosine of the segments that hold it, and by the words that it shares with the query:
    the cosine of their rare words. On the demo's judged topics, 72 % of the sentences chosen from 64 likely ones stand
    in relevant documents, and 69 % of those chosen from all.
    """
    if len(spans) <= most:
        return list(spans)
    own = context.by_id
    words = [_find_stems(own[span.doc_id][0].text[span.start : span.end]) for span in spans]
    asked = [_find_stems(query.dense_text) for query in context.queries]
    counts = Counter(word for stems in words for word in stems)
    weight = {
        word: math.log((len(spans) + 1) / (counts[word] + 0.5)) ** 2 for stems in (*words, *asked) for word in stems
    }

    def size(stems: set[str]) -> float:
        return math.fsum(weight[word] for word in stems)  # in any order the same, as sets are in none

    def cosine(one: set[str], other: set[str]) -> float:
        return size(one & other) / math.sqrt(size(one) * size(other) or 1)

    shared = np.array([[cosine(one, other) for other in words] for one in asked])
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
    """The numbers of the segments that hold a sentence."""
    return [
        number
        for number, segment in enumerate(document.segments)
        if segment.span.start <= span.start and span.end <= segment.span.end
    ]


def is_prose(sentence: str) -> bool:
    """Whether a stretch of text reads as a sentence: 6 to 60 words, ends as one, and is mostly words."""
    tokens = sentence.split()
    plain = sum(bool(_PLAIN.fullmatch(token)) for token in tokens)
    return 6 <= len(tokens) <= 60 and sentence[0].isalnum() and sentence[-1] in ".!?" and plain >= 0.8 * len(tokens)


def group_same_sentences(vectors: Vectors) -> list[list[int]]:
    """Groups of sentences that say the same (cosine of at least 0.95 with the group's first), in order."""
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
    """What a sentence gives to a query, 0 to 3 as UMBRELA grades: the cosine above 0.25, stretched."""
    cosines = (queries @ candidates.T).astype(np.float64)
    return np.clip((cosines - RELATED_COSINE) / (1 - RELATED_COSINE), 0, 1) * 3
