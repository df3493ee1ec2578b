"""Extractive answers: sentences of the documents, chosen for coverage of the queries, each with its citations.

They are made without a model, in place of retrieval-level fusion (Keystone-Docs RAG, section 3.2.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.closest import find_closest_segments
from keystone.fusion.coverage import choose
from keystone.generation.context.topic import Sources, TopicContext, embed_spans
from keystone.generation.rules.sentences import (
    SAME_COSINE,
    choose_likely,
    compute_worth,
    find_holding_segments,
    find_sentences,
    group_same_sentences,
)
from keystone.generation.rules.subject import include_subject, read_sentence
from keystone.generation.rules.words import find_stems
from keystone.generation.types import Answer, Evidence, Sentence
from keystone.indexing.types import Document, Span
from keystone.indexing.vectors.types import Vectors

MOST_CITATIONS = 3
"""The most citations of one sentence."""
LEAST_WORTH = 0.5
"""The least worth of a sentence that serves a query, as `compute_worth` computes it."""
MOST_SENTENCES = 6
"""The most sentences that serve a question."""
MOST_SENTENCES_OF_PART = 2
"""The most sentences that serve a part of a question."""
SAME_WORDS_SHARE = 0.8
"""The least share of content words in common by which two sentences repeat each other."""


@dataclass(frozen=True, slots=True)
class CandidateSentences:
    """Sentences of a topic's documents with their vectors, float32[spans, d]."""

    spans: Sequence[Span]
    vectors: Vectors


def find_candidates(context: TopicContext, sources: Sources, evidence: Sequence[Evidence] = ()) -> CandidateSentences:
    """Find the sentences of `evidence`, then others of the documents that are likely to be close to a query."""
    likely_ones = choose_likely(context, find_sentences(context))
    spans = list(dict.fromkeys([*(item.span for item in evidence), *likely_ones]))
    return CandidateSentences(spans, embed_spans(sources, context, spans))


def gather_sentences(context: TopicContext, candidates: CandidateSentences) -> list[Evidence]:
    """Gather each distinct sentence among the candidates, with its best query and its utility for that query."""
    heads = [group[0] for group in group_same_sentences(candidates.vectors)]
    spans = [candidates.spans[head] for head in heads]
    utility = compute_worth(context, spans, candidates.vectors[heads])
    serves = np.argmax(utility, axis=0) if utility.size else np.empty(0, np.int64)
    documents = context.by_id
    return [
        Evidence(
            span,
            read_sentence(documents[span.doc_id][0], span),
            float(utility[serves[place], place]),
            context.queries[int(serves[place])].id,
        )
        for place, span in enumerate(spans)
    ]


def choose_sentences(
    topic_id: str, context: TopicContext, evidence: Sequence[Evidence], candidates: CandidateSentences, words: int
) -> Answer:
    """Choose sentences of the evidence for coverage of the queries, within `words` words.

    `candidates` must hold the sentences of the evidence. Each query is served by its best sentences only, and a query
    that nothing answers adds nothing. No sentence repeats the words of another. If another candidate says the same, its
    citations are added.

    Sentences are in the order of the queries that they serve best. In each document that says the sentence, the
    citation is the closest of the segments that hold it, with the line that names its subject if one does (paper,
    section 3.4). The best three citations stay.
    """
    place_of = {span: place for place, span in enumerate(candidates.spans)}
    evidence = leave_out_repeats(evidence)
    heads = [place_of[item.span] for item in evidence]
    worth = compute_worth(context, [item.span for item in evidence], candidates.vectors[heads])
    utility = keep_best(worth, count_most([query.question for query in context.queries]))
    serves = np.argmax(utility, axis=0) if utility.size else np.empty(0, np.int64)
    chosen = choose(utility, [len(item.text.split()) for item in evidence], words)
    in_turn = sorted(chosen, key=lambda i: (int(serves[i]), -utility[serves[i], i], i))
    groups = _group_by_head(heads, candidates.vectors)
    documents = context.by_id
    return Answer(
        topic_id,
        tuple(
            Sentence(
                evidence[i].text, _cite([(candidates.spans[j], candidates.vectors[j]) for j in groups[i]], documents)
            )
            for i in in_turn
        ),
    )


def quote_closest_segment(topic_id: str, context: TopicContext, words: int) -> Answer:
    """Answer with the first words of the segment closest to any query, if no sentence can be chosen.

    The answer has at most `words` words, and cites that segment. If no segment has a text, it has no sentence.
    """
    found = [
        (float(cosine), segment.id, text)
        for document, vectors in context.by_id.values()
        for segment, cosine in zip(document.segments, (context.query_vectors @ vectors.T).max(axis=0), strict=True)
        if (text := document.segment_text(segment).strip())
    ]
    if not found:
        return Answer(topic_id, ())
    _, segment_id, text = max(found, key=lambda one: one[0])
    return Answer(topic_id, (Sentence(" ".join(text.split()[:words]), (segment_id,)),))


def leave_out_repeats(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Leave out each sentence whose content words are nearly those of a better one. The order stays."""
    kept: dict[int, set[str]] = {}
    for place in sorted(range(len(evidence)), key=lambda i: (-evidence[i].score, i)):
        stems = find_stems(evidence[place].text)
        if all(len(stems & other) < SAME_WORDS_SHARE * min(len(stems), len(other)) for other in kept.values()):
            kept[place] = stems
    return [evidence[place] for place in sorted(kept)]


def count_most(questions: Sequence[str]) -> NDArray[np.int64]:
    """Count the most sentences that serve each question: fewer for a question that is a part of another."""
    return np.array(
        [
            MOST_SENTENCES_OF_PART if any(part in other and part != other for other in questions) else MOST_SENTENCES
            for part in questions
        ]
    )


def keep_best(worth: NDArray[np.float64], most: NDArray[np.int64]) -> NDArray[np.float64]:
    """Keep the worth of each query's `most` best sentences, and set that of others to 0. The earlier one wins a tie.

    `worth` is float64[queries, sentences], and `most` int64[queries].
    """
    places = np.argsort(np.argsort(-worth, axis=1, kind="stable"), axis=1, kind="stable")
    return np.where((places < most[:, np.newaxis]) & (worth >= LEAST_WORTH), worth, 0.0)


def _group_by_head(heads: Sequence[int], vectors: Vectors) -> list[list[int]]:
    """Find for each head the places of all sentences that say the same. A sentence belongs to its first such head."""
    groups = [[head] for head in heads]
    known = set(heads)
    for place in range(len(vectors)) if heads else ():
        if place not in known:
            same = np.flatnonzero(vectors[heads] @ vectors[place] >= SAME_COSINE)
            if same.size:
                groups[int(same[0])].append(place)
    return groups


def _cite(
    saying: Sequence[tuple[Span, NDArray[np.float32]]], documents: dict[str, tuple[Document, Vectors]]
) -> tuple[str, ...]:
    found: dict[str, float] = {}
    for span, vector in saying:
        document, vectors = documents[span.doc_id]
        in_segments = find_holding_segments(document, include_subject(document, span), span)
        best, cosine = find_closest_segments(vector[None, :], vectors[in_segments])
        segment_id = document.segments[in_segments[int(best[0])]].id
        found[segment_id] = max(found.get(segment_id, -1.0), float(cosine[0]))
    return tuple(sorted(found, key=lambda segment_id: (-found[segment_id], segment_id))[:MOST_CITATIONS])
