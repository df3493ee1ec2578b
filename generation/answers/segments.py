"""Citations of segments: the segment closest to the sentence replaces its document (paper, section 3.4)."""

import numpy as np
from numpy.typing import NDArray

from fusion.closest import find_closest_segments
from generation.answers.cite import drop_far_citations
from generation.context.topic import Sources, TopicContext
from generation.types import Answer, Fallback, Sentence
from indexing.vectors.embed import embed_passages


def cite_segments(answer: Answer, context: TopicContext, sources: Sources) -> tuple[Answer, list[Fallback]]:
    """Cite, in place of each document, its segment closest to the sentence.

    If no segment of a document is close to the sentence, the citation is dropped, and a `Fallback` records that.
    """
    vectors = embed_passages(sources.embedding, [sentence.text for sentence in answer.sentences], sources.threads)
    own = context.by_id
    sentences, dropped = drop_far_citations(
        answer.sentences, vectors, {doc_id: segments for doc_id, (_, segments) in own.items()}
    )

    def segment(doc_id: str, vector: NDArray[np.float32]) -> str:
        document, segments = own[doc_id]
        return document.segments[int(find_closest_segments(vector[None], segments)[0][0])].id

    cited = tuple(
        Sentence(sentence.text, tuple(segment(doc_id, vector) for doc_id in sentence.citations))
        for sentence, vector in zip(sentences, vectors, strict=True)
    )
    far = [
        Fallback(answer.topic_id, "check", f"sentence {place} does not cite {doc_id}: cosine {cosine:.2f}")
        for place, doc_id, cosine in dropped
    ]
    return Answer(answer.topic_id, cited), far
