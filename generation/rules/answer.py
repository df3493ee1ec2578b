"""Extractive answers: sentences of the documents, chosen for coverage of the queries, each with its citations.

The rule twin of retrieval-level fusion (Keystone-Docs RAG, section 3.2.2): nothing is written, only chosen.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusion.coverage import choose
from fusion.segments import closest
from generation.types import Answer, Evidence, Sentence
from indexing.embed import Vectors
from indexing.segments import sentences
from indexing.types import Document, Span
from retrieval.types import Query

SAME = 0.95
RELATED = 0.25
CITATIONS = 3

_PLAIN = re.compile(r"""[("'\u201c\u2018]*[^\W\d_]+(?:['\u2019-][^\W\d_]+)*[)"'\u201d\u2019,.;:!?]*""")


def gather(documents: Sequence[Document], segments: Sequence[Vectors], queries: Vectors) -> list[Span]:
    """The sentences worth reading: those of each document's closest segment to each query, in document order."""
    spans: list[Span] = []
    for document, vectors in zip(documents, segments, strict=True):
        best, _ = closest(queries, vectors)
        chosen = [document.segments[number].span for number in sorted(set(best.tolist()))]
        spans += [
            Span(document.id, start, end)
            for start, end in sentences(document.text)
            if any(s.start <= start and end <= s.end for s in chosen) and is_prose(document.text[start:end])
        ]
    return spans


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
        holding = [
            number
            for number, segment in enumerate(document.segments)
            if segment.span.start <= span.start and span.end <= segment.span.end
        ]
        best, cosine = closest(vector[None, :], vectors[holding])
        segment_id = document.segments[holding[int(best[0])]].id
        found[segment_id] = max(found.get(segment_id, -1.0), float(cosine[0]))
    return tuple(sorted(found, key=lambda segment_id: (-found[segment_id], segment_id))[:CITATIONS])
