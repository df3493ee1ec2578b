"""Citations of segments: the segment closest to the sentence replaces its document (paper, section 3.4)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusion.closest import find_closest_segments
from generation.answers.cite import drop_far_citations
from generation.context.topic import Sources, TopicContext
from generation.types import Answer, Fallback, Sentence
from indexing.types import Document, Span
from indexing.vectors.embed import embed_passages


def cite_segments(
    answer: Answer, context: TopicContext, sources: Sources, spans: Sequence[Span] | None = None
) -> tuple[Answer, list[Fallback]]:
    """Cite, in place of each document, its segment closest to the sentence.

    If `spans` is not None, only segments that overlap one of these stretches are candidates, if there are any.

    If no segment of a document is close to the sentence, the citation is dropped, and a `Fallback` records that.
    """
    vectors = embed_passages(sources.embedding, [sentence.text for sentence in answer.sentences], sources.threads)
    own = context.by_id
    sentences, dropped = drop_far_citations(
        answer.sentences, vectors, {doc_id: segments for doc_id, (_, segments) in own.items()}
    )

    def segment(doc_id: str, vector: NDArray[np.float32]) -> str:
        document, segments = own[doc_id]
        among = _find_overlapping(document, spans)
        return document.segments[among[int(find_closest_segments(vector[None], segments[among])[0][0])]].id

    cited = tuple(
        Sentence(sentence.text, tuple(segment(doc_id, vector) for doc_id in sentence.citations))
        for sentence, vector in zip(sentences, vectors, strict=True)
    )
    far = [
        Fallback(answer.topic_id, "check", f"sentence {place} does not cite {doc_id}: cosine {cosine:.2f}")
        for place, doc_id, cosine in dropped
    ]
    return Answer(answer.topic_id, cited), far


def _find_overlapping(document: Document, spans: Sequence[Span] | None) -> list[int]:
    """Find the numbers of the segments that overlap one of the stretches; all numbers if none does."""
    own = [span for span in spans or () if span.doc_id == document.id]
    found = [
        number
        for number, segment in enumerate(document.segments)
        if any(segment.span.start < span.end and span.start < segment.span.end for span in own)
    ]
    return found or list(range(len(document.segments)))
