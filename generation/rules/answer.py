"""Extractive answers: sentences of the documents, chosen for coverage of the queries, each with its citations.

The rule twin of retrieval-level fusion (Keystone-Docs RAG, section 3.2.2): nothing is written, only chosen.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusion.closest import find_closest_segments
from fusion.coverage import choose
from generation.rules.words import content_words
from generation.types import Answer, Evidence, Sentence
from indexing.corpora.segments import split_sentences
from indexing.types import Document, Span
from indexing.vectors.types import Vectors
from retrieval.types import Query

SAME = 0.95
RELATED = 0.25
CITATIONS = 3
CANDIDATES = 64
"""Sentences that are embedded for a topic, which is most of the work of an answer."""
WORDS_WEIGHT = 0.6
"""What words in common count where the cosine of the segment counts 1."""
STEM_LETTERS = 6

_PLAIN = re.compile(r"""[("'\u201c\u2018]*[^\W\d_]+(?:['\u2019-][^\W\d_]+)*[)"'\u201d\u2019,.;:!?]*""")


def gather(documents: Sequence[Document], segments: Sequence[Vectors], queries: Vectors) -> list[Span]:
    """The sentences worth reading: those of each document's closest segment to each query, in document order."""
    spans: list[Span] = []
    for document, vectors in zip(documents, segments, strict=True):
        best, _ = find_closest_segments(queries, vectors)
        chosen = [document.segments[number].span for number in sorted(set(best.tolist()))]
        spans += [
            Span(document.id, start, end)
            for start, end in split_sentences(document.text)
            if any(s.start <= start and end <= s.end for s in chosen) and is_prose(document.text[start:end])
        ]
    return spans


def likely(
    queries: Sequence[Query],
    query_vectors: Vectors,
    documents: Sequence[Document],
    segments: Sequence[Vectors],
    spans: Sequence[Span],
    most: int = CANDIDATES,
) -> list[Span]:
    """The sentences most likely to be close to a query, before any is embedded: each query's best in turn, in order.

    A sentence counts by the mean cosine of the segments that hold it, and by the words that it shares with the query:
    the cosine of their rare words. On the demo's judged topics, 72 % of the sentences chosen from 64 likely ones stand
    in relevant documents, and 69 % of those chosen from all.
    """
    if len(spans) <= most:
        return list(spans)
    own = {document.id: (document, vectors) for document, vectors in zip(documents, segments, strict=True)}
    words = [_stems(own[span.doc_id][0].text[span.start : span.end]) for span in spans]
    asked = [_stems(query.dense_text) for query in queries]
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
        near[:, place] = (query_vectors @ vectors[_holding(document, span)].T).mean(axis=1)
    chances = near + WORDS_WEIGHT * shared
    turn = np.argsort(np.argsort(-chances, axis=1, kind="stable"), axis=1, kind="stable").min(axis=0)
    chosen = np.lexsort((-chances.max(axis=0), turn))[:most]
    return [spans[place] for place in sorted(chosen.tolist())]


def _stems(text: str) -> set[str]:
    return {word[:STEM_LETTERS] for word in content_words(text)}


def _holding(document: Document, span: Span) -> list[int]:
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


def merge_same(vectors: Vectors) -> list[list[int]]:
    """Groups of sentences that say the same (cosine of at least 0.95 with the group's first), in order."""
    groups: list[list[int]] = []
    for number in range(len(vectors)):
        heads = vectors[[group[0] for group in groups]]
        same = np.flatnonzero(heads @ vectors[number] >= SAME) if groups else np.empty(0, np.int64)
        if same.size:
            groups[int(same[0])].append(number)
        else:
            groups.append([number])
    return groups


def utilities(queries: Vectors, candidates: Vectors) -> NDArray[np.float64]:
    """What a sentence gives to a query, 0 to 3 as UMBRELA grades: the cosine above 0.25, stretched."""
    cosines = (queries @ candidates.T).astype(np.float64)
    return np.clip((cosines - RELATED) / (1 - RELATED), 0, 1) * 3


def answer(
    topic_id: str,
    queries: Sequence[Query],
    query_vectors: Vectors,
    documents: Sequence[Document],
    segments: Sequence[Vectors],
    spans: Sequence[Span],
    span_vectors: Vectors,
    words_limit: int,
) -> tuple[Answer, list[Evidence]]:
    """Choose sentences by coverage under the word limit; returns the answer and the evidence it was chosen from.

    Sentences are told in the order of the queries that they serve best. A sentence cites, in each document
    that says it, the closest (section 3.4 of the paper) of the segments that hold it, best first, three at most.
    """
    texts = {document.id: document for document in documents}
    plain = [" ".join(texts[span.doc_id].text[span.start : span.end].split()) for span in spans]
    groups = merge_same(span_vectors)
    heads = [group[0] for group in groups]
    utility = utilities(query_vectors, span_vectors[heads])
    serves = np.argmax(utility, axis=0) if utility.size else np.empty(0, np.int64)
    evidence = [
        Evidence(spans[head], plain[head], float(utility[serves[i], i]), queries[int(serves[i])].id)
        for i, head in enumerate(heads)
    ]
    chosen = choose(utility, [len(plain[head].split()) for head in heads], words_limit)
    told = sorted(chosen, key=lambda i: (int(serves[i]), -utility[serves[i], i], i))
    vectors = {document.id: (document, own) for document, own in zip(documents, segments, strict=True)}
    return Answer(
        topic_id,
        tuple(
            Sentence(plain[heads[i]], _cite([(spans[j], span_vectors[j]) for j in groups[i]], vectors)) for i in told
        ),
    ), evidence


def closest_passage(
    topic_id: str, queries: Vectors, documents: Sequence[Document], segments: Sequence[Vectors], words: int
) -> Answer:
    """The beginning of the segment closest to a query, for where no sentence is close or reads as one.

    It has at most `words` words, and cites that segment. Without documents the answer has no sentence.
    """
    if not documents:
        return Answer(topic_id, ())
    cosines = [(queries @ own.T).max(axis=0) for own in segments]
    place = int(np.argmax([own.max() for own in cosines]))
    segment = documents[place].segments[int(np.argmax(cosines[place]))]
    text = " ".join(documents[place].segment_text(segment).split()[:words])
    return Answer(topic_id, (Sentence(text, (segment.id,)),))


def _cite(
    saying: Sequence[tuple[Span, NDArray[np.float32]]], documents: dict[str, tuple[Document, Vectors]]
) -> tuple[str, ...]:
    found: dict[str, float] = {}
    for span, vector in saying:
        document, vectors = documents[span.doc_id]
        holding = _holding(document, span)
        best, cosine = find_closest_segments(vector[None, :], vectors[holding])
        segment_id = document.segments[holding[int(best[0])]].id
        found[segment_id] = max(found.get(segment_id, -1.0), float(cosine[0]))
    return tuple(sorted(found, key=lambda segment_id: (-found[segment_id], segment_id))[:CITATIONS])
