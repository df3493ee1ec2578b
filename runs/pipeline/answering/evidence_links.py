"""The links between an answer, its evidence and the segments: evidence names segments, sentences name evidence."""

from dataclasses import replace

from keystone.generation.rules.words import find_terms
from keystone.generation.types import Answer, EvidenceSet, Sentence
from keystone.indexing.types import Store


def name_segments(found: EvidenceSet, store: Store) -> EvidenceSet:
    """Name the segments that overlap each item of the evidence."""
    ids = sorted({item.span.doc_id for item in found.items})
    segments = {document.id: document.segments for document in store.get(store.rows(ids))}
    named = (
        tuple(segment.id for segment in segments[item.span.doc_id] if segment.span.overlaps(item.span))
        for item in found.items
    )
    return replace(
        found, items=tuple(replace(item, segments=own) for item, own in zip(found.items, named, strict=True))
    )


def point_to_evidence(answer: Answer, found: EvidenceSet) -> Answer:
    """Point each sentence to its evidence: for each citation, the item in that segment with most of its terms.

    If several items have the same number of terms, the first one counts. A citation of a segment without evidence adds
    no pointer.
    """
    terms = [find_terms(item.text) for item in found.items]

    def point(sentence: Sentence) -> Sentence:
        own = find_terms(sentence.text)
        places = (
            max(inside, key=lambda place: len(own & terms[place]))
            for citation in sentence.citations
            if (inside := [place for place, item in enumerate(found.items) if citation in item.segments])
        )
        return replace(sentence, evidence=tuple(dict.fromkeys(places)))

    return replace(answer, sentences=tuple(map(point, answer.sentences)))
