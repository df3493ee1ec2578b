"""Citations: reference assignment (Keystone-Docs RAG, section 3.2.2), a check by similarity, the choice of segments.

Citations of segments take the place of the documents that a model names: the closest, or those that say the most, by
words and embedding together.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.closest import find_closest_segments
from keystone.generation.answers.sentences import Passage, list_sentences, read_citations, read_place, show_passages
from keystone.generation.context.topic import TopicContext
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts import answers as prompts
from keystone.generation.replies import read_parts
from keystone.generation.rules.support import tells_gap
from keystone.generation.rules.words import find_terms, make_weigher
from keystone.generation.types import MOST_CITATIONS, Answer, Failure, Fallback, Reply, Request, Sentence
from keystone.indexing.corpora.languages import differ_in_language
from keystone.indexing.embedder import Vectors
from keystone.indexing.languages import LANGUAGES
from keystone.indexing.types import Document, Span

LEAST_CITED_COSINE = 0.1
"""The least cosine of a sentence and the closest segment of a document that it cites.

Measured with the local embedding: with their own documents, sentences had at least 0.12 (0.5th percentile; median
0.60). With documents on quite other subjects, they had up to 0.1.
"""


def request_citations(sentences: Sequence[Sentence], passages: Sequence[Passage]) -> Request:
    """Make a request for the passages that support each sentence."""
    documents, listed = show_passages(passages), list_sentences(sentences)
    return prompts.CITE.request(1024 + 64 * len(sentences), documents=documents, sentences=listed)


def read_supports(reply: Reply, sentences: Sequence[Sentence], passages: Sequence[Passage]) -> list[tuple[str, ...]]:
    """Read the ids of the documents that support each sentence. Numbers without a sentence or passage are dropped."""
    found = defaultdict[int, list[str]](list)
    for item in read_parts(reply, "sentences", prompts.Citations):
        place = read_place(item.id, len(sentences))
        if place is not None:
            found[place] += read_citations(item.citations, passages)
    return [tuple(dict.fromkeys(found[place])) for place in range(len(sentences))]


async def assign_citations(
    model: Model, answers: Sequence[Answer | None], passages: Sequence[Sequence[Passage]]
) -> tuple[list[Answer | None], list[Fallback]]:
    """Assign citations to the sentences that have none, unless they tell a gap. All others stay unchanged.

    If the model names no support for a sentence, the sentence stays without citation, and a `Fallback` records that.
    """
    now, fallbacks = list(answers), list[Fallback]()
    bare = [
        (place, answer, uncited)
        for place, answer in enumerate(answers)
        if answer and (uncited := [one for one in answer.sentences if _needs_citation(one)])
    ]
    requests = [
        (
            request_citations(uncited_ones, passages[place]),
            partial(read_supports, sentences=uncited_ones, passages=passages[place]),
        )
        for place, _, uncited_ones in bare
    ]
    for (place, answer, uncited_ones), found in zip(bare, await ask_all(model, requests), strict=True):
        if isinstance(found, Failure):
            fallbacks.append(Fallback(answer.topic_id, "cite", found.reason))
            found = [()] * len(uncited_ones)
        if left := found.count(()):
            reason = f"{left} of {len(answer.sentences)} sentences are left without citation"
            fallbacks.append(Fallback(answer.topic_id, "cite", reason))
        given = iter(found)
        now[place] = replace(
            answer,
            sentences=tuple(replace(s, citations=next(given)) if _needs_citation(s) else s for s in answer.sentences),
        )
    return now, fallbacks


def _needs_citation(sentence: Sentence) -> bool:
    return not sentence.citations and not tells_gap(sentence.text)


def drop_far_citations(
    sentences: Sequence[Sentence],
    vectors: Vectors,
    segments: Mapping[str, Vectors],
    near: float = LEAST_CITED_COSINE,
    texts: Mapping[str, str] = MappingProxyType({}),
    languages: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[Sentence], list[tuple[int, str, float]]]:
    """Drop citations of documents whose subject is another than the sentence's.

    `vectors` is float32[sentences, d], and `segments` has float32[s, d] by document id. A citation is dropped if the
    document's closest segment has a cosine below `near`. A document without segments is not checked. Neither is
    one whose text, in `texts`, is in another language than the sentence: the threshold was measured within a language.
    `languages` has the names of those that the index knows.

    Returns the sentences, and the dropped citations as (place of the sentence, document id, cosine). The check cannot
    find out whether a document supports a sentence.
    """
    checked, dropped = list[Sentence](), list[tuple[int, str, float]]()
    for place, sentence in enumerate(sentences):
        far = []
        for doc_id in sentence.citations:
            own = segments.get(doc_id)
            if own is not None and len(own):
                cosine = float(find_closest_segments(vectors[place : place + 1], own)[1][0])
                text, language = texts.get(doc_id, ""), languages.get(doc_id, "")
                if cosine < near and not differ_in_language(sentence.text, text, language):
                    far.append((place, doc_id, cosine))
        dropped_ids = {doc_id for _, doc_id, _ in far}
        checked.append(replace(sentence, citations=tuple(c for c in sentence.citations if c not in dropped_ids)))
        dropped += far
    return checked, dropped


LEAST_GAIN_SHARE = 0.15
"""The least share of a sentence's weight that a further segment must cover anew."""


@dataclass(frozen=True, slots=True)
class TopicSegments:
    """The segments of a topic's documents in order: ids, documents, titles, texts, terms, vectors (float32[s, d]).

    `weigh` sums the weights of terms: the rarer a term is in these segments, the more it weighs.
    """

    ids: tuple[str, ...]
    doc_ids: tuple[str, ...]
    titles: tuple[str, ...]
    texts: tuple[str, ...]
    terms: tuple[frozenset[str], ...]
    vectors: Vectors
    weigh: Callable[[Iterable[str]], float]
    languages: tuple[str, ...] = ()
    """The names of the languages of the segments, each empty if the index does not know it; none for unknown ones."""

    def find_language(self, place: int) -> str:
        """Find the name of the language of the segment at a place; empty if the index does not know it."""
        return self.languages[place] if self.languages else ""

    def rate(self, terms: AbstractSet[str], vector: NDArray[np.float32]) -> NDArray[np.float64]:
        """Rate each segment as a source of a sentence: the cosine plus the covered share of the sentence's weight."""
        whole = self.weigh(terms) or 1.0
        shares = np.array([self.weigh(terms & own) / whole for own in self.terms], np.float64)
        return shares + (self.vectors @ vector).astype(np.float64)

    def show(self, place: int) -> str:
        """Show the segment at a place: the title of its document, if it has one, and its text."""
        return f"{self.titles[place]}\n{self.texts[place]}" if self.titles[place] else self.texts[place]

    def find_of(self, doc_ids: Iterable[str]) -> list[int]:
        """Find the places of the segments of these documents."""
        wanted = set(doc_ids)
        return [place for place, doc_id in enumerate(self.doc_ids) if doc_id in wanted]


def list_segments(context: TopicContext, spans: Sequence[Span] | None = None) -> TopicSegments:
    """List the segments of a topic's documents with their terms.

    If `spans` is not None, a document has only the segments that overlap one of these stretches, if there are any.
    """
    own = list(context.by_id.values())
    places = [(document, vectors, n) for document, vectors in own for n in find_overlapping(document, spans)]
    texts = tuple(document.segment_text(document.segments[n]) for document, _, n in places)
    terms = tuple(map(find_terms, texts))
    return TopicSegments(
        tuple(document.segments[n].id for document, _, n in places),
        tuple(document.id for document, _, _ in places),
        tuple(document.title for document, _, _ in places),
        texts,
        terms,
        np.array([vectors[n] for _, vectors, n in places], np.float32).reshape(
            len(places), context.query_vectors.shape[1]
        ),
        make_weigher(terms),
        tuple(LANGUAGES.get(document.language, "") for document, _, _ in places),
    )


def find_overlapping(document: Document, spans: Sequence[Span] | None) -> list[int]:
    """Find the numbers of the segments that overlap one of the stretches; all numbers if none does."""
    found = [number for number, segment in enumerate(document.segments) if any(map(segment.span.overlaps, spans or ()))]
    return found or list(range(len(document.segments)))


def choose_segments(
    segments: TopicSegments, terms: AbstractSet[str], ratings: NDArray[np.float64], doc_ids: Sequence[str]
) -> list[int]:
    """Choose the segments that a sentence with these terms cites: the places of the best one of each document.

    `ratings` are those of `TopicSegments.rate`. While there are fewer than `MOST_CITATIONS`, the function adds the
    segment of these documents that covers most of the terms not yet covered. If that is less than `LEAST_GAIN_SHARE`,
    it adds no further segment. The higher rating wins a tie, then the earlier segment.
    """
    of_each = [segments.find_of([doc_id]) for doc_id in doc_ids]
    best = [max(own, key=lambda place: ratings[place]) for own in of_each if own]
    return add_segments(segments, terms, ratings, best, [place for own in of_each for place in own])


def add_segments(
    segments: TopicSegments,
    terms: AbstractSet[str],
    ratings: NDArray[np.float64],
    chosen: Sequence[int],
    among: Sequence[int],
) -> list[int]:
    """Add to the chosen places the segments among these that cover the rest of the terms; see `choose_segments`."""
    found = list(chosen)
    missing = terms - frozenset().union(*(segments.terms[place] for place in found))
    least = LEAST_GAIN_SHARE * segments.weigh(terms)
    while among and missing and len(found) < MOST_CITATIONS:
        gains = [segments.weigh(missing & segments.terms[place]) for place in among]
        gain, _, best = max(zip(gains, ratings[list(among)], (-place for place in among), strict=True))
        if gain < least or gain == 0:
            break
        found.append(-best)
        missing -= segments.terms[-best]
    return found


SegmentChoice = Literal["closest", "words"]
"""`closest` cites each document's segment closest to the sentence (paper, section 3.4). `words` compares words too, and
cites a further segment where one does not say it all: see `choose_segments`."""


def cite_segments(
    answer: Answer, vectors: Vectors, segments: TopicSegments, choice: SegmentChoice, measured: bool = True
) -> tuple[Answer, list[Fallback]]:
    """Cite, in place of documents, their segments. `vectors` has those of the sentences, float32[sentences, d].

    If no segment of a document is close to the sentence, the citation is dropped, and a `Fallback` records that. All
    stay unless the vectors are `measured`, that is, made by the model for which `LEAST_CITED_COSINE` is known.
    """
    cited = {doc_id for sentence in answer.sentences for doc_id in sentence.citations}
    places_of = {doc_id: segments.find_of([doc_id]) for doc_id in cited}
    sentences, dropped = drop_far_citations(
        answer.sentences,
        vectors,
        {doc_id: segments.vectors[places] for doc_id, places in places_of.items()},
        LEAST_CITED_COSINE if measured else -math.inf,
        texts={doc_id: "\n".join(segments.texts[place] for place in places) for doc_id, places in places_of.items()},
        languages={doc_id: segments.find_language(places[0]) for doc_id, places in places_of.items() if places},
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
