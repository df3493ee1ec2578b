"""Sentences of documents for extractive answers: their choice, their groups of equal meaning, their utilities."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from keystone.generation.context.topic import Sources, TopicContext
from keystone.generation.rules.queries import decompose, split_into_parts
from keystone.generation.rules.stands_alone import can_be_read, continues, explains_entry
from keystone.generation.rules.subject import find_listed, read_sentence
from keystone.generation.rules.words import find_stems
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.types import Document, Span
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.vectors.types import Vectors, round_to_grid
from keystone.retrieval.types import Query

SAME_COSINE = 0.95
"""The least cosine of two sentences that say the same."""
RELATED_COSINE = 0.25
"""The cosine of a sentence and a query from which on the sentence has a utility."""
MOST_CANDIDATE_SENTENCES = 96
"""The most sentences that are embedded for a topic. Embedding is most of the work of an answer."""
WORDS_WEIGHT = 0.6
"""The weight of the words in common. The cosine of the segment has weight 1."""
MOST_QUESTIONS = 200
"""The most questions and parts of questions into which the queries of a narrative are split."""
OPENING_CHARACTERS = 500
"""A sentence that begins before this character opens its document."""
OPENING_WORTH = 0.15
"""The worth that a sentence gains by opening its document."""
NARRATIVE_SHARE = 0.2
"""The share of the narrative in the vector of each of its questions."""


def ask_each_clause(context: TopicContext, sources: Sources) -> TopicContext:
    """Return the context with its queries split into questions and their parts. Their embeddings are made anew."""
    queries = add_parts(split_into_questions(context.queries))
    return replace(context, queries=queries, query_vectors=embed_questions(sources, queries))


def split_into_questions(queries: Sequence[Query]) -> list[Query]:
    """Split queries into questions of one facet, each once, in order, under the ids of the queries."""
    return _ask_each(queries, decompose)


def add_parts(questions: Sequence[Query]) -> list[Query]:
    """Add after each question its parts, such as "a settings file" of "How to take options and a settings file?"."""
    return _ask_each(questions, lambda question: (question, *split_into_parts(question)))


def _ask_each(queries: Sequence[Query], split: Callable[[str], Sequence[str]]) -> list[Query]:
    """Split each query. Beyond `MOST_QUESTIONS` in all, the queries stay as they are: each question is embedded."""
    asked: dict[str, Query] = {}
    for query in queries:
        for text in split(query.question):
            asked.setdefault(text.lower(), replace(query, question=text, dense_text=text))
    return list(asked.values()) if len(asked) <= MOST_QUESTIONS else list(queries)


def embed_questions(sources: Sources, questions: Sequence[Query]) -> Vectors:
    """Embed the questions of one narrative: float32[questions, d].

    A question such as "How to fetch it?" is clear only beside the others. So each vector is moved a little towards the
    mean of all. A narrative's only question keeps its vector.
    """
    vectors = embed_queries(sources.embedding, [question.dense_text for question in questions], sources.threads)
    mean = round_to_grid(vectors.mean(axis=0, dtype=np.float64, keepdims=True))
    return round_to_grid((1 - NARRATIVE_SHARE) * vectors + NARRATIVE_SHARE * mean)


def find_sentences(context: TopicContext) -> list[Span]:
    """Find the sentences of the documents that can be read alone, in the order of the documents.

    A sentence that goes on from such a sentence, as with "It", is found together with it, as one stretch. If the
    context is not `whole`, a segment holds each.
    """
    return [
        span
        for document in context.documents.values()
        for span in _find_readable(document)
        if context.whole or _list_holding_segments(document, span)
    ]


def _find_readable(document: Document) -> Iterator[Span]:
    listed = list(find_listed(document.text))
    for start, end in listed:
        span = Span(document.id, start, end)
        if explains_entry(read_sentence(document, span)):
            yield span
    listed_ends = [end for _, end in listed]
    before: Span | None = None
    for start, end in split_sentences(document.text):
        place = bisect_right(listed_ends, start)
        if place < len(listed) and listed[place][0] < end:
            before = None
            continue
        span = Span(document.id, start, end)
        text = read_sentence(document, span)
        if can_be_read(text, document.title):
            yield span
            before = span
        else:
            if before and "." in text[-2:] and continues(text) and "\n\n" not in document.text[before.end : start]:
                yield Span(document.id, before.start, end)
            before = None


def choose_likely(context: TopicContext, spans: Sequence[Span], most: int = MOST_CANDIDATE_SENTENCES) -> list[Span]:
    """Choose the `most` sentences that are likely to be close to a query, in their order, before any is embedded.

    The queries choose in turn, each its best sentence that is left by `rate_chances`.
    """
    if len(spans) <= most:
        return list(spans)
    chances = rate_chances(context, spans)
    turn = np.argsort(np.argsort(-chances, axis=1, kind="stable"), axis=1, kind="stable").min(axis=0)
    chosen = np.lexsort((-chances.max(axis=0), turn))[:most]
    return [spans[place] for place in sorted(chosen.tolist())]


def rate_chances(context: TopicContext, spans: Sequence[Span]) -> NDArray[np.float64]:
    """Rate the chance of each sentence to answer each query, before it is embedded: float64[queries, spans].

    It has two parts: the mean cosine of the segments that hold the sentence, and the words that it shares with the
    query (the cosine of their rare words). The opening sentences of a document explain its subject, so they have more
    of a chance.
    """
    own = context.by_id
    near = np.empty((len(context.queries), len(spans)))
    for place, span in enumerate(spans):
        document, vectors = own[span.doc_id]
        near[:, place] = (context.query_vectors @ vectors[find_holding_segments(document, span)].T).mean(axis=1)
        near[:, place] += OPENING_WORTH * (span.start < OPENING_CHARACTERS)
    return near + WORDS_WEIGHT * compare_words(context, spans)


def compare_words(context: TopicContext, spans: Sequence[Span]) -> NDArray[np.float64]:
    """Compare the words of queries and sentences: float64[queries, spans], the cosine of their rare words."""
    texts = {document.id: document.text for document in context.documents.values()}
    span_stems = [find_stems(texts[span.doc_id][span.start : span.end]) for span in spans]
    query_stems = [find_stems(query.dense_text) for query in context.queries]
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

    return np.array([[compare(one, other) for other in span_stems] for one in query_stems])


def find_holding_segments(document: Document, *spans: Span) -> list[int]:
    """Find the numbers of the segments that hold the first of the spans that any holds; all numbers if none is held."""
    held = (_list_holding_segments(document, span) for span in spans)
    return next(filter(None, held), list(range(len(document.segments))))


def _list_holding_segments(document: Document, span: Span) -> list[int]:
    return [
        number
        for number, segment in enumerate(document.segments)
        if segment.span.start <= span.start and span.end <= segment.span.end
    ]


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


def compute_worth(context: TopicContext, spans: Sequence[Span], vectors: Vectors) -> NDArray[np.float64]:
    """Compute the worth of each sentence for each query: float64[queries, spans].

    It is the sentence's cosine with the query plus the chance of `rate_chances`.
    """
    return (context.query_vectors @ vectors.T).astype(np.float64) + rate_chances(context, spans)


def compute_utilities(queries: Vectors, candidates: Vectors) -> NDArray[np.float64]:
    """Compute the utility of each candidate for each query: float64[queries, candidates], 0 to 3 as UMBRELA grades.

    A cosine of 0.25 gives 0, a cosine of 1 gives 3, and values between are linear. `queries` is float32[queries, d],
    and `candidates` float32[candidates, d].
    """
    cosines = (queries @ candidates.T).astype(np.float64)
    return np.clip((cosines - RELATED_COSINE) / (1 - RELATED_COSINE), 0, 1) * 3
