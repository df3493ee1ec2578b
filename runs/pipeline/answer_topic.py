"""The answer to one topic: by rules, from all its documents at once, or from an answer to each of its queries."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fusion.closest import find_closest_segments
from generation.answers.answer import AnswerTask, answered
from generation.answers.cite import check
from generation.answers.sentences import Passage, Words
from generation.answers.sub_answers import SubTask, sub_answered
from generation.answers.synthesise import SynthesisTask, edit, joined, resynthesise, select_edit
from generation.context.passages import best_spans, told
from generation.context.tokens import clip, tokens
from generation.llm.model import Model
from generation.rules.answer import answer as chosen_by_rules
from generation.rules.answer import closest_passage, gather, likely
from generation.types import Answer, Evidence, Fallback, Sentence
from indexing.types import Span
from indexing.vectors.embed import embed_passages
from indexing.vectors.of_sentences import sentence_vectors
from retrieval.types import Query, Rankings, Topic
from runs.pipeline.job import Job
from runs.pipeline.steps import asked_of
from runs.pipeline.topic_documents import Material, gathered
from runs.tracks.answer_files import cut_to_limits

LEAST = 64
"""Tokens that a document is shown with at least."""
LOW = 0.75
"""The share of an answer's words that it should have at least: 300 of 400 in the paper."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a topic, citing segments; what it was made from; and where the model gave nothing."""

    answer: Answer
    evidence: list[Evidence]
    fallbacks: list[Fallback]


async def answer_topic(
    job: Job, model: Model | None, topic: Topic, queries: Sequence[Query], hybrid: Rankings, selected: Sequence[int]
) -> Answered:
    """Answer a topic from the selected documents (rows of the store, best first), or each query from its own.

    Where the model gives nothing, or nothing that the track takes, sentences are chosen by rules, which is recorded.
    """
    settings = job.config.answer
    places = asked_of(topic.id, queries)
    lists = [list(selected[: settings.documents])]
    if settings.method == "answers":
        lists = [hybrid.of(place)[: settings.documents].tolist() for place in places]
    rows = list(dict.fromkeys(row for own in lists for row in own))
    material = await asyncio.to_thread(gathered, job, rows, [queries[place] for place in places])
    if settings.method == "rules" or model is None:
        return await asyncio.to_thread(by_rules, job, topic, material)
    most = job.words_for(topic)
    words = (int(most * LOW), most)
    asked = [slice(n, n + 1) for n in range(len(lists))] if settings.method == "answers" else [slice(None)]
    shown = [shown_of(job, material, own, each) for own, each in zip(lists, asked, strict=True)]
    passages = [passages_of(material, evidence) for evidence in shown]
    if settings.method == "retrieval":
        (made,), fallbacks = await answered(model, [AnswerTask(topic.id, topic.narrative, passages[0], words)])
    else:
        made, fallbacks = await from_each(job, model, topic, material, passages, words)
    if made is None or not cut_to_limits(topic.id, made.sentences, job.track):
        chosen = await asyncio.to_thread(by_rules, job, topic, material)
        return replace(
            chosen, fallbacks=[*fallbacks, Fallback(topic.id, "answer", "its sentences are chosen by rules")]
        )
    answer, far = await asyncio.to_thread(with_segments, job, made, material)
    kept = cut_to_limits(topic.id, answer.sentences, job.track)
    if len(kept) < len(answer.sentences):
        lost = f"{len(answer.sentences) - len(kept)} of {len(answer.sentences)} sentences exceed the track's length"
        far.append(Fallback(topic.id, "limits", lost))
    return Answered(answer, [item for evidence in shown for item in evidence], [*fallbacks, *far])


def by_rules(job: Job, topic: Topic, material: Material) -> Answered:
    """Sentences of the documents, chosen for coverage of the queries."""
    documents, segments = list(material.documents.values()), [material.segments[row] for row in material.documents]
    spans = gather(documents, segments, material.asked)
    spans = likely(material.queries, material.asked, documents, segments, spans)
    text_of = {document.id: document.text for document in documents}
    said = sentence_vectors(job.index, [text_of[s.doc_id][s.start : s.end] for s in spans], job.threads)
    made, evidence = chosen_by_rules(
        topic.id, material.queries, material.asked, documents, segments, spans, said, job.words_for(topic)
    )
    if not made.sentences:
        made = closest_passage(topic.id, material.asked, documents, segments, job.words_for(topic))
    return Answered(made, evidence, [])


def shown_of(job: Job, material: Material, rows: Sequence[int], asked: slice) -> list[Evidence]:
    """What the model is shown of the documents in these rows: each whole, or its best segments for what is asked.

    Together they take half of the model's window: documents for which less than `LEAST` tokens are left, the last,
    are not shown, and a segment that is longer than its share is cut.
    """
    rows = rows[: max(1, window(job) // 2 // LEAST)]
    limit = window(job) // 2 // max(len(rows), 1)
    shown = []
    for row in rows:
        document, cosines = material.documents[row], material.asked[asked] @ material.segments[row].T
        spans = [(0, len(document.text))]
        if tokens(told(document, spans)) > limit:
            spans = best_spans(document, cosines, None, limit)
            if spans and tokens(told(document, spans)) > limit:
                start, end = spans[0]
                spans = [
                    (start, start + len(clip(document.text[start:end], max(0, limit - tokens(document.title) - 1))))
                ]
        query = material.queries[asked][int(cosines.max(axis=1).argmax())]
        shown += [
            Evidence(Span(document.id, start, end), document.text[start:end], float(cosines.max()), query.id)
            for start, end in spans
        ]
    return shown


def window(job: Job) -> int:
    """The tokens that the model takes."""
    assert job.config.model is not None  # the configuration has been checked
    return job.config.model.window


def passages_of(material: Material, shown: Sequence[Evidence]) -> tuple[Passage, ...]:
    """The documents as the model is shown them, each once."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for evidence in shown:
        spans.setdefault(evidence.span.doc_id, []).append((evidence.span.start, evidence.span.end))
    by_id = {document.id: document for document in material.documents.values()}
    return tuple(Passage(doc_id, "", told(by_id[doc_id], own)) for doc_id, own in spans.items())


async def from_each(
    job: Job, model: Model, topic: Topic, material: Material, passages: Sequence[tuple[Passage, ...]], words: Words
) -> tuple[Answer | None, list[Fallback]]:
    """Answer-level fusion: an answer to each query from its own documents, and one from these (paper, section 3.3)."""
    settings = job.config.answer
    asked = [
        SubTask(topic.id, topic.narrative, query.question, own)
        for query, own in zip(material.queries, passages, strict=True)
    ]
    sub_answers, fallbacks = await sub_answered(model, asked, settings.prompt_with)
    task = SynthesisTask(topic.id, topic.narrative, tuple(one.query for one in asked), tuple(sub_answers), words)
    if settings.synthesis == "edit":
        (made,), missed = await edit(model, [task])
    elif settings.synthesis == "resynthesise":
        by_id = {passage.doc_id: passage for own in passages for passage in own}
        limit = window(job) // 2 // max(len(by_id), 1)
        shown = [passage._replace(text=clip(passage.text, limit)) for passage in by_id.values()]
        (made,), missed = await resynthesise(model, [task], [shown])
    else:
        texts = [sentence.text for sentence in joined(task)]
        said = await asyncio.to_thread(embed_passages, job.embedding, texts, job.threads)
        (made,), missed = await select_edit(model, [task], [material.asked], [said])
    return made, [*fallbacks, *missed]


def with_segments(job: Job, answer: Answer, material: Material) -> tuple[Answer, list[Fallback]]:
    """The answer with each cited document's segment that is closest to the sentence (paper, section 3.4).

    A citation of a document that says nothing near the sentence is dropped, which is recorded.
    """
    vectors = embed_passages(job.embedding, [sentence.text for sentence in answer.sentences], job.threads)
    own = {document.id: (document, material.segments[row]) for row, document in material.documents.items()}
    sentences, dropped = check(answer.sentences, vectors, {doc_id: segments for doc_id, (_, segments) in own.items()})

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
