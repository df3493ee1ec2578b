"""Sentences of documents for extractive answers: their choice, their groups of equal meaning, their utilities."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from keystone.generation.context.topic import Sources, TopicContext
from keystone.generation.rules.queries import split_into_questions
from keystone.generation.rules.stands_alone import can_be_read, continues, explains_entry
from keystone.generation.rules.subject import find_listed, read_sentence
from keystone.generation.rules.words import make_weigher
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.types import Document, Span
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.vectors.of_segments import sentence_vectors
from keystone.indexing.vectors.types import Vectors, round_to_grid
from keystone.indexing.words import find_stems
from keystone.retrieval.types import Query

SAME_COSINE = 0.95
"""The least cosine of two sentences that say the same."""
RELATED_COSINE = 0.25
"""The cosine of a sentence and a query from which on the sentence has a utility."""
MOST_CANDIDATE_SENTENCES = 96
"""The most sentences that are embedded for a topic. Embedding is most of the work of an answer."""
SHARED_WORTH, HELD_WORTH = 0.09, 0.05
"""The worth of a query's word for each unit of its weight, if the sentence shares it, and if the document holds it."""
LEAST_SHARED = 2
"""The fewest words that a sentence shares with a query that it fits, if only words can tell."""
MOST_SHARED_STEMS = 8
"""The content words of a query by which shared words count in full. In a longer one, each counts less."""
MOST_STRETCH_SENTENCES, MOST_STRETCH_WORDS = 3, 70
"""The most sentences, and the most words, of a sentence with those that go on from it."""
MOST_KEPT_DOCUMENTS, LONGEST_KEPT_CHARACTERS = 1024, 50_000
"""The documents whose readable sentences are kept, and the longest of them. Narratives and runs share documents."""
FEEDBACK_SEGMENTS = 3
"""The segments closest to a query whose mean tells how the documents put it."""
NAMING_CHARACTERS = 200
"""The characters of a document, after its title, that are compared with the questions. They name its subject."""
NARRATIVE_SHARE = 0.3
"""The share of the narrative in the vector of each of its questions."""
_GERUND_ITEM = re.compile(r"[-*+\u2022]\s+\w+ing\b")
"""An item of a list that names an action, as a part of the sentence above the list."""


def ask_each_clause(context: TopicContext, sources: Sources) -> TopicContext:
    """Return the context with its queries split into questions. Their embeddings are made anew."""
    questions = split_into_questions(context.queries)
    return replace(
        context,
        queries=questions,
        query_vectors=embed_questions(sources, questions, context.query_vectors),
        openings=embed_openings(sources, list(context.documents.values())),
    )


def embed_openings(sources: Sources, documents: Sequence[Document]) -> Vectors:
    """Embed the title and the first characters of documents, which name their subjects: float32[documents, d]."""
    openings = [f"{document.title} {' '.join(document.text[:NAMING_CHARACTERS].split())}" for document in documents]
    return sentence_vectors(sources.index, openings, sources.threads)


def embed_questions(sources: Sources, questions: Sequence[Query], queries: Vectors) -> Vectors:
    """Embed the questions of one narrative: float32[questions, d].

    A question such as "How to fetch it?" is clear only beside the others. So each vector is moved towards the mean of
    the topic's `queries` (float32[queries, d]), of which the whole narrative is one.
    """
    vectors = embed_queries(sources.embedding, [question.dense_text for question in questions], sources.threads)
    mean = round_to_grid(queries.mean(axis=0, dtype=np.float64, keepdims=True))
    return round_to_grid((1 - NARRATIVE_SHARE) * vectors + NARRATIVE_SHARE * mean)


def find_sentences(context: TopicContext) -> list[Span]:
    """Find the sentences of the documents that can be read alone, in the order of the documents.

    Sentences that go on from such a sentence, as with "It" or "this", are found together with it too, as one stretch.
    If the context is not `whole`, a segment holds each.
    """
    return [
        span
        for document in context.documents.values()
        for span in (_find_readable if len(document.text) <= LONGEST_KEPT_CHARACTERS else _read_through)(document)
        if context.whole or _list_holding_segments(document, span)
    ]


@lru_cache(MOST_KEPT_DOCUMENTS)
def _find_readable(document: Document) -> tuple[Span, ...]:
    return tuple(_read_through(document))


def _read_through(document: Document) -> Iterator[Span]:
    listed = list(find_listed(document.text))
    for start, end in listed:
        span = Span(document.id, start, end)
        if explains_entry(read_sentence(document, span)):
            yield span
    listed_ends = [end for _, end in listed]
    stretch: list[Span] = []
    for start, end in split_sentences(document.text):
        place = bisect_right(listed_ends, start)
        if place < len(listed) and listed[place][0] < end:
            stretch = []
            continue
        span = Span(document.id, start, end)
        text = "" if _GERUND_ITEM.match(document.text, start) else read_sentence(document, span)
        if stretch and _goes_on(document.text, stretch, text, span):
            stretch.append(span)
            yield Span(document.id, stretch[0].start, end)
        else:
            stretch = [span] if can_be_read(text, document.title) else []
            yield from stretch


def _goes_on(text: str, stretch: Sequence[Span], sentence: str, span: Span) -> bool:
    """Tell whether a sentence of `text` goes on from a stretch of its paragraph that has room for it."""
    return (
        len(stretch) < MOST_STRETCH_SENTENCES
        and len(text[stretch[0].start : span.end].split()) <= MOST_STRETCH_WORDS
        and "\n\n" not in text[stretch[-1].end : span.start]
        and all("." in text[one.end - 2 : one.end] for one in (stretch[-1], span))
        and continues(sentence)
    )


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

    It has three parts: the worth of its document, the highest cosine of the segments that hold it, and the rare words
    that it shares with the query.
    """
    own = context.by_id
    of_documents = dict(zip(own, rate_documents(context).T, strict=True))
    chances = SHARED_WORTH * weigh_shared_words(context, spans)
    for place, span in enumerate(spans):
        document, vectors = own[span.doc_id]
        near = context.query_vectors @ vectors[find_holding_segments(document, span)].T
        chances[:, place] += of_documents[span.doc_id] + near.max(axis=1)
    return chances


def rate_documents(context: TopicContext) -> NDArray[np.float64]:
    """Rate the worth of each document for each query: float64[queries, documents].

    It has two parts: the words of the query that the document holds, and the highest cosine of its segments. If
    openings are embedded, the second part is the mean of that and of the cosine of its title and opening.
    """
    cosines = [(context.query_vectors @ own.T).max(axis=1, initial=-1) for own in context.segments.values()]
    near = np.array(cosines, np.float64).reshape(len(cosines), len(context.queries)).T
    if context.openings is not None:
        near = (near + (context.query_vectors @ context.openings.T).astype(np.float64)) / 2
    texts = [f"{document.title} {document.text}" for document in context.documents.values()]
    return near + HELD_WORTH * _weigh_shared(context.queries, texts)


def weigh_shared_words(context: TopicContext, spans: Sequence[Span]) -> NDArray[np.float64]:
    """Weigh the words that each sentence shares with each query: float64[queries, spans]. Rare words weigh more."""
    documents = {document.id: document for document in context.documents.values()}
    return _weigh_shared(context.queries, [read_sentence(documents[span.doc_id], span) for span in spans])


def _weigh_shared(queries: Sequence[Query], texts: Sequence[str]) -> NDArray[np.float64]:
    """Weigh the words that each text shares with each query: float64[queries, texts].

    In a query of more than `MOST_SHARED_STEMS` words each counts less, since a long text shares words with everything.
    """
    said = list(map(find_stems, texts))
    weigh = make_weigher(said)
    asked = [find_stems(query.dense_text) for query in queries]
    weights = [[weigh(own & other) * min(1.0, MOST_SHARED_STEMS / max(1, len(own))) for other in said] for own in asked]
    return np.array(weights).reshape(len(asked), len(said))


def share_words(context: TopicContext, spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Tell whether each sentence, with its title, shares two words with each query: bool[queries, spans].

    For a query of one word, one is enough.
    """
    documents = {document.id: document for document in context.documents.values()}
    read = (f"{documents[span.doc_id].title} {read_sentence(documents[span.doc_id], span)}" for span in spans)
    said = list(map(find_stems, read))
    asked = [find_stems(query.dense_text) for query in context.queries]
    shared = [[len(own & other) >= min(len(own), LEAST_SHARED) for other in said] for own in asked]
    return np.array(shared, np.bool_).reshape(len(asked), len(said))


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

    It has four parts: the sentence's cosine with the query, its cosine with the mean of the query's closest segments,
    which has the words of the documents, the worth of its document, and the rare words that it shares with the query.
    """
    if not spans:
        return np.zeros((len(context.queries), 0))
    segments = np.concatenate(list(context.segments.values()))
    closest = np.argsort(-(context.query_vectors @ segments.T), axis=1, kind="stable")[:, :FEEDBACK_SEGMENTS]
    feedback = segments[closest].mean(axis=1, dtype=np.float64)
    feedback /= np.maximum(np.linalg.norm(feedback, axis=1, keepdims=True), 1e-9)
    places = {doc_id: place for place, doc_id in enumerate(context.by_id)}
    of_documents = rate_documents(context)[:, [places[span.doc_id] for span in spans]]
    near = ((context.query_vectors + round_to_grid(feedback)) @ vectors.T).astype(np.float64)
    return near + of_documents + SHARED_WORTH * weigh_shared_words(context, spans)


def compute_utilities(queries: Vectors, candidates: Vectors) -> NDArray[np.float64]:
    """Compute the utility of each candidate for each query: float64[queries, candidates], 0 to 3 as UMBRELA grades.

    A cosine of 0.25 gives 0, a cosine of 1 gives 3, and values between are linear. `queries` is float32[queries, d],
    and `candidates` float32[candidates, d].
    """
    cosines = (queries @ candidates.T).astype(np.float64)
    return np.clip((cosines - RELATED_COSINE) / (1 - RELATED_COSINE), 0, 1) * 3
