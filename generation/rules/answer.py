"""Extractive answers: sentences of the documents, chosen for coverage of the queries, each with its citations.

They are made without a model, in place of retrieval-level fusion (Keystone-Docs RAG, section 3.2.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.closest import find_closest_segments
from keystone.generation.context.topic import Sources, TopicContext, embed_spans
from keystone.generation.rules.queries import open_question, split_into_questions
from keystone.generation.rules.sentences import (
    SAME_COSINE,
    choose_likely,
    compute_worth,
    embed_openings,
    embed_questions,
    find_holding_segments,
    find_sentences,
    group_same_sentences,
    include_subject,
    read_sentence,
    share_words,
)
from keystone.generation.rules.support import find_added
from keystone.generation.types import MOST_CITATIONS, Answer, Evidence, Sentence
from keystone.indexing.embedder import Vectors
from keystone.indexing.types import Document, Span
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.words import find_stems
from keystone.retrieval.types import Query

NOTHING = "The documents seem to say nothing that answers the question."
"""The answer if no sentence fits. It cites nothing."""
MISSING = "The documents seem to say nothing about:"
"""The words before the questions that no sentence of an answer fits."""
LEAST_WORTH = 1.7
"""The least worth of a question's best sentence, as `compute_worth` computes it."""
LEAST_WORTH_BESIDE = 1.5
"""The least worth of another sentence of the same document."""
LEAST_SHARE, MOST_SHARE, MOST_SENTENCES = 3, 10, 16
"""The most sentences of all questions. A question's share of them is at least 3 and at most 10."""
LEAST_WORTH_BEYOND = 2.0
"""The least worth of a sentence of a question that already has its least share."""
LIKE_COSINE = 0.8
"""Above this cosine, a sentence says little more than another one."""
SAME_WORDS_SHARE = 0.8
"""The least share of content words in common by which two sentences repeat each other."""


@dataclass(frozen=True, slots=True)
class CandidateSentences:
    """Sentences of a topic's documents with their vectors, float32[spans, d].

    `texts` has one for each span if the cosines of these vectors do not tell which sentences say the same.
    """

    spans: Sequence[Span]
    vectors: Vectors
    texts: Sequence[str] = ()

    @property
    def meanings(self) -> Vectors:
        """Vectors whose cosines tell which sentences say the same, of equal texts alone if others cannot be told."""
        if not self.texts:
            return self.vectors
        numbers = {text: number for number, text in enumerate(dict.fromkeys(self.texts))}
        return np.eye(len(numbers), dtype=np.float32)[[numbers[text] for text in self.texts]]


def find_candidates(context: TopicContext, sources: Sources, evidence: Sequence[Evidence] = ()) -> CandidateSentences:
    """Find the sentences of `evidence`, then others of the documents that are likely to be close to a query."""
    likely_ones = choose_likely(context, find_sentences(context))
    spans = list(dict.fromkeys([*(item.span for item in evidence), *likely_ones]))
    documents = context.by_id
    told = sources.embedding.tells_repeats
    texts = [] if told else [read_sentence(documents[span.doc_id][0], span) for span in spans]
    return CandidateSentences(spans, embed_spans(sources, context, spans), texts)


def gather_sentences(context: TopicContext, candidates: CandidateSentences) -> list[Evidence]:
    """Gather each distinct sentence among the candidates, with its best query and its utility for that query."""
    heads = [group[0] for group in group_same_sentences(candidates.meanings)]
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
    topic_id: str,
    context: TopicContext,
    evidence: Sequence[Evidence],
    candidates: CandidateSentences,
    words: int,
    measured: bool = True,
) -> Answer:
    """Choose sentences of the evidence for the questions, within `words` words.

    `candidates` must hold the sentences of the evidence. The questions take turns: each takes the best sentence that is
    left for it, and none if nothing fits. Whether a sentence fits is told by its worth if the vectors are `measured`,
    that is, made by the model for which the least worth is known, and otherwise by the words that it shares. If nothing
    fits any question, the answer says so, if that is within `words` words, and cites nothing.

    If words are left, the sentences that go on from a chosen one are added to it.

    No sentence repeats the words of another. If another candidate says the same, its citations are added.

    Sentences are in the order of the questions, and those of one document in the order of its text. If there are
    several questions, a line of its own words opens the first sentence of each, unless the line has a name or number
    that the cited segments lack. In each document that says the sentence, the citation is the closest of the segments
    that hold it, with the line that names its subject if one does (paper, section 3.4). The best three citations stay.
    """
    place_of, meanings = {span: place for place, span in enumerate(candidates.spans)}, candidates.meanings
    evidence = leave_out_repeats(evidence)
    heads = [place_of[item.span] for item in evidence]
    vectors = candidates.vectors[heads]
    openings = [open_question(query.question) for query in context.queries] if len(context.queries) > 1 else [""]
    spans = [item.span for item in evidence]
    worth = compute_worth(context, spans, vectors)
    if not measured:
        worth = np.where(share_words(context, spans), worth + LEAST_WORTH, 0.0)
    costs = [len(item.text.split()) for item in evidence]
    doc_ids, lengths = [span.doc_id for span in spans], [len(opening.split()) for opening in openings]
    served = take_turns(worth, doc_ids, costs, lengths, words, meanings[heads])
    if candidates.spans and not any(served):
        return Answer(topic_id, (Sentence(NOTHING, ()),) if len(NOTHING.split()) <= words else ())
    groups = _group_by_head(heads, meanings)
    documents = context.by_id
    left = words - sum(len(openings[row].split()) + sum(costs[i] for i in own) for row, own in enumerate(served) if own)
    fuller = _lengthen([spans[i] for own in served for i in own], candidates.spans, documents, left)
    sentences: list[Sentence] = []
    for opening, own in zip(openings, served, strict=True):
        for number, i in enumerate(_put_in_order(own, spans)):
            span = fuller.get(spans[i], spans[i])
            said = [(candidates.spans[j], candidates.vectors[j]) for j in (place_of[span], *groups[i][1:])]
            cited = _cite(said, documents)
            opens = opening and not number and not find_added(opening, _read_cited(cited, said, documents))
            text = read_sentence(documents[span.doc_id][0], span)
            text = f"{opening} {text}" if opens else text
            sentences.append(Sentence(text, cited))
    left_open = [opening.rstrip(":?") for opening, own in zip(openings, served, strict=True) if not own]
    return Answer(topic_id, tuple(sentences), missing=f"{MISSING} {'; '.join(left_open)}." if left_open else "")


def take_turns(
    worth: NDArray[np.float64],
    doc_ids: Sequence[str],
    costs: Sequence[int],
    openings: Sequence[int],
    words: int,
    vectors: Vectors,
) -> list[list[int]]:
    """Let the questions take sentences in turns, the best first: the places of each question's sentences.

    `worth` is float64[questions, sentences]. A sentence serves the question for which it is worth most. A question
    whose best sentence is worth too little takes none. Beside its best one, it takes sentences of the same document
    that are worth less. Beyond the least share, a sentence must be worth more. A question's first sentence also costs
    its opening. By the cosines of `vectors`, it leaves out what says little more than a sentence that was taken before.
    """
    served: list[list[int]] = [[] for _ in openings]
    if not worth.size:
        return served
    serves, left = np.argmax(worth, axis=0), words
    ranked = [sorted(np.flatnonzero(serves == row).tolist(), key=lambda i: -worth[row, i]) for row in range(len(worth))]
    waiting = [
        [i for i in own if worth[row, i] >= (LEAST_WORTH if doc_ids[i] != doc_ids[own[0]] else LEAST_WORTH_BESIDE)]
        if own and worth[row, own[0]] >= LEAST_WORTH
        else []
        for row, own in enumerate(ranked)
    ]
    for _ in range(count_share(len(worth))):
        for row in sorted(range(len(worth)), key=lambda row: -max((worth[row, i] for i in waiting[row]), default=0)):
            opening = 0 if served[row] else openings[row]
            least = LEAST_WORTH_BEYOND if len(served[row]) >= LEAST_SHARE else LEAST_WORTH_BESIDE
            taken = [i for own in served for i in own]
            likely = (i for i in waiting[row] if worth[row, i] >= least)
            new = (i for i in likely if (vectors[taken] @ vectors[i] <= LIKE_COSINE).all())
            found = next((i for i in new if costs[i] + opening <= left), None)
            if found is not None:
                served[row].append(found)
                waiting[row].remove(found)
                left -= costs[found] + opening
    return served


def _lengthen(
    chosen: Sequence[Span], spans: Sequence[Span], documents: dict[str, tuple[Document, Vectors]], left: int
) -> dict[Span, Span]:
    """Find the longest stretch of `spans` that begins with each chosen sentence, while `left` words have room.

    A stretch that reaches into another chosen sentence is left out.
    """
    fuller: dict[Span, Span] = {}
    ends: dict[tuple[str, int], int] = {}
    for span in spans:
        ends[span.doc_id, span.start] = max(span.end, ends.get((span.doc_id, span.start), 0))
    for span in chosen:
        text, end = documents[span.doc_id][0].text, ends[span.doc_id, span.start]
        more = len(text[span.end : end].split())
        if 0 < more <= left and not any(o.doc_id == span.doc_id and span.end < o.end and o.start < end for o in chosen):
            fuller[span] = replace(span, end=end)
            left -= more
    return fuller


def count_share(questions: int) -> int:
    """Count the most sentences that serve each of so many questions."""
    return min(MOST_SHARE, max(LEAST_SHARE, MOST_SENTENCES // questions))


def _put_in_order(own: Sequence[int], spans: Sequence[Span]) -> list[int]:
    """Put sentences in the order of their documents, the one with the best sentence first, and then of the text."""
    documents = list(dict.fromkeys(spans[i].doc_id for i in own))
    return sorted(own, key=lambda i: (documents.index(spans[i].doc_id), spans[i].start))


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


def _read_cited(
    cited: Sequence[str],
    saying: Sequence[tuple[Span, NDArray[np.float32]]],
    documents: dict[str, tuple[Document, Vectors]],
) -> str:
    own = dict.fromkeys(span.doc_id for span, _ in saying)
    return "\n".join(
        f"{document.title}\n{document.segment_text(segment)}"
        for document in (documents[doc_id][0] for doc_id in own)
        for segment in document.segments
        if segment.id in cited
    )


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


SEARCHED_TIMES = 2
"""The number of documents to choose from, as a multiple of the number to choose."""


def choose_documents(sources: Sources, queries: Sequence[Query], rows: Sequence[int], number: int) -> list[int]:
    """Choose `number` documents for an answer by rules. `rows` of the store is their ranking, best first.

    A narrative's best documents may lack one of its questions. So each question's closest document comes first, by the
    embedding of its title and opening, among the `2 * number` best. Then come the others in their order. The chosen
    ones keep the ranking's order.
    """
    searched = rows[: SEARCHED_TIMES * number]
    if len(searched) <= number:
        return list(searched)
    documents = sources.store.get(searched)
    vectors = embed_openings(sources, documents)
    asked = embed_queries(sources.embedding, [query.dense_text for query in queries], sources.threads)
    questions = embed_questions(sources, split_into_questions(queries), asked)
    closest = np.argmax(questions @ vectors.T, axis=1).tolist()
    places = list(dict.fromkeys([*closest, *range(len(searched))]))
    return [searched[place] for place in sorted(places[:number])]
