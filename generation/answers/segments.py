"""Citations of segments, in place of the documents that a model names: the closest, or those that say the most."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from keystone.fusion.closest import find_closest_segments
from keystone.generation.answers.choose_segments import TopicSegments, choose_segments
from keystone.generation.answers.cite import drop_far_citations
from keystone.generation.rules.terms import find_terms
from keystone.generation.types import Answer, Fallback, Sentence
from keystone.indexing.vectors.types import Vectors

SegmentChoice = Literal["closest", "words"]
"""`closest` cites each document's segment closest to the sentence (paper, section 3.4). `words` compares words too, and
cites a further segment where one does not say it all: see `choose_segments`."""


def cite_segments(
    answer: Answer, vectors: Vectors, segments: TopicSegments, choice: SegmentChoice
) -> tuple[Answer, list[Fallback]]:
    """Cite, in place of documents, their segments. `vectors` has those of the sentences, float32[sentences, d].

    If no segment of a document is close to the sentence, the citation is dropped, and a `Fallback` records that.
    """
    cited = {doc_id for sentence in answer.sentences for doc_id in sentence.citations}
    places_of = {doc_id: segments.find_of([doc_id]) for doc_id in cited}
    sentences, dropped = drop_far_citations(
        answer.sentences,
        vectors,
        {doc_id: segments.vectors[places] for doc_id, places in places_of.items()},
        texts={doc_id: "\n".join(segments.texts[place] for place in places) for doc_id, places in places_of.items()},
    )
    now = list[Sentence]()
    for sentence, vector in zip(sentences, vectors, strict=True):
        if choice == "words":
            terms = find_terms(sentence.text)
            places = choose_segments(segments, terms, segments.rate(terms, vector), sentence.citations)
        else:
            of_each = [segments.find_of([doc_id]) for doc_id in sentence.citations]
            places = [own[int(find_closest_segments(vector[None], segments.vectors[own])[0][0])] for own in of_each]
        now.append(replace(sentence, citations=tuple(segments.ids[place] for place in places)))
    far = [
        Fallback(answer.topic_id, "check", f"sentence {place} does not cite {doc_id}: cosine {cosine:.2f}")
        for place, doc_id, cosine in dropped
    ]
    return replace(answer, sentences=tuple(now)), far


def limit_references(sentences: Sequence[Sentence], most: int | None) -> list[Sentence]:
    """Limit the distinct ids that sentences cite to `most`: first citations come first, then second ones, and so on."""
    allowed = set[str]()
    ranks = max((len(sentence.citations) for sentence in sentences), default=0)
    for citation in (s.citations[rank] for rank in range(ranks) for s in sentences if rank < len(s.citations)):
        if most is None or len(allowed) < most:
            allowed.add(citation)
    return [replace(s, citations=tuple(c for c in s.citations if c in allowed)) for s in sentences]
