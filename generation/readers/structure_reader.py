"""The frame of all structure-aware readers: each reads for one question, and the same writer answers.

A reader is a function `read(tools, question)`. With the methods `answers` and `claims` it reads for each
query, and otherwise once for the whole narrative.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from keystone.generation.context.topic import TopicContext, embed_spans
from keystone.generation.llm.ask import run_together
from keystone.generation.readers.reader import Hits, Task, Tools
from keystone.generation.readers.write import cut_to_tokens, write_answer
from keystone.generation.rules.sentences import read_sentence
from keystone.generation.rules.stands_alone import can_be_read
from keystone.generation.types import Answer, Evidence, EvidenceSet, Stop
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.types import Document, Span
from keystone.indexing.vectors.embed import embed_queries


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its documents, best first, and its vector, float32[d]. The narrative as a whole has no `query_id`."""

    topic_id: str
    query_id: str
    text: str
    vector: NDArray[np.float32]
    context: TopicContext
    rows: tuple[int, ...]

    @property
    def documents(self) -> list[Document]:
        """The documents to read, best first."""
        return [self.context.documents[row] for row in self.rows]

    def quote(self, span: Span, score: float = 0.0, heading: str = "", why: str = "") -> Evidence:
        """Make evidence of a stretch of one of the documents."""
        text = {one.id: one.text for one in self.documents}[span.doc_id]
        return Evidence(span, text[span.start : span.end], score, self.query_id, heading, why)

    def find_closest_segments(self, row: int, most: int) -> list[Span]:
        """Find the `most` segments of a document that are closest to the question, the closest first.

        Ties go to the earlier segment. A document without segments is one stretch.
        """
        document = self.context.documents[row]
        if not document.segments:
            return [Span(document.id, 0, len(document.text))]
        order = np.argsort(-(self.context.segments[row] @ self.vector), kind="stable")[:most]
        return [document.segments[number].span for number in order.tolist()]


def list_questions(tools: Tools, task: Task, hits: Hits) -> list[Question]:
    """List the questions of a task: the narrative with one list of documents, or each query with its own.

    The queries of `task.context` and the lists of `hits` are in the same order.
    """
    context = task.context
    if tools.settings.is_by_query:
        return [
            Question(task.topic.id, query.id, query.question, vector, context, rows)
            for query, vector, rows in zip(context.queries, context.query_vectors, hits, strict=True)
        ]
    (vector,) = embed_queries(tools.sources.embedding, [task.topic.narrative], tools.sources.threads)
    return [Question(task.topic.id, "", task.topic.narrative, vector, context, rows) for rows in hits]


Read = Callable[[Tools, Question], Awaitable[EvidenceSet]]
"""Reads the documents of a question. Its evidence is in the order of its worth, the best first."""


class WritesFromEvidence:
    """The part of a reader with `tools` that answers from evidence of any length."""

    __slots__ = ()
    tools: Tools

    async def answer(self, task: Task, evidence: EvidenceSet) -> Answer:
        """Write the answer from the evidence. Rules choose among its sentences."""
        if self.tools.settings.method == "rules":
            evidence = replace(evidence, items=split_evidence(task, evidence.items))
        return await write_answer(self.tools, task, evidence)


@dataclass(frozen=True, slots=True)
class StructureReader(WritesFromEvidence):
    """A structure-aware reader; see the module."""

    read: Read
    tools: Tools

    async def gather(self, task: Task, hits: Hits) -> EvidenceSet:
        """See `keystone.generation.readers.reader.Reader`."""
        questions = await asyncio.to_thread(list_questions, self.tools, task, hits)
        found = await run_together([partial(self.read, self.tools, question) for question in questions])
        items = [
            item
            for question, one in zip(questions, found, strict=True)
            for item in order_by_text(
                score_by_place(cut_to_tokens(keep_citable(question.documents, one.items), self.tools.evidence_tokens)),
                question.documents,
            )
        ]
        if not self.tools.settings.is_by_query:
            items = await asyncio.to_thread(self._name_queries, task, items)
        stop = join_stops([one.stop for one in found])
        return EvidenceSet(
            tuple(items),
            tuple(note for one in found for note in one.notes),
            stop if items or stop != "done" else "empty",
            self.tools.reader.name,
            self.tools.asks.name if self.tools.asks else "rules",
            tuple(step for one in found for step in one.steps),
        )

    def _name_queries(self, task: Task, items: Sequence[Evidence]) -> list[Evidence]:
        context = task.context
        vectors = embed_spans(self.tools.sources, context, [item.span for item in items])
        best = (vectors @ context.query_vectors.T).argmax(axis=1).tolist() if items else []
        return [replace(item, query_id=context.queries[place].id) for item, place in zip(items, best, strict=True)]


def is_citable(document: Document, span: Span) -> bool:
    """Return whether an answer can cite a stretch of a document: it overlaps a segment, or the document has none.

    The segments may end before a long text does, or be only the closest ones.
    """
    return not document.segments or any(one.span.overlaps(span) for one in document.segments)


def keep_citable(documents: Iterable[Document], items: Sequence[Evidence]) -> list[Evidence]:
    """Keep the evidence that an answer can cite. It is from these documents."""
    by_id = {document.id: document for document in documents}
    return [item for item in items if is_citable(by_id[item.span.doc_id], item.span)]


def score_by_place(items: Sequence[Evidence]) -> list[Evidence]:
    """Score evidence by the reciprocal of its place, so that its order can be found again."""
    return [replace(item, score=1 / place) for place, item in enumerate(items, start=1)]


def order_by_text(items: Sequence[Evidence], documents: Sequence[Document]) -> list[Evidence]:
    """Put evidence into the order of the documents, and within a document into the order of its text."""
    rank = {document.id: place for place, document in enumerate(documents)}
    return sorted(items, key=lambda item: (rank[item.span.doc_id], item.span.start, item.span.end))


def split_evidence(task: Task, items: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Split pieces of evidence into their sentences, each once. Rules choose among sentences."""
    documents = {document.id: document for document in task.context.documents.values()}
    found: dict[str, Evidence] = {}
    for item in items:
        text = documents[item.span.doc_id].text[item.span.start : item.span.end]
        for start, end in split_sentences(text):
            span = Span(item.span.doc_id, item.span.start + start, item.span.start + end)
            sentence = read_sentence(documents[span.doc_id], span)
            if can_be_read(sentence, documents[span.doc_id].title):
                found.setdefault(sentence, Evidence(span, sentence, item.score, item.query_id, item.heading, item.why))
    return tuple(found.values())


def join_stops(stops: Sequence[Stop]) -> Stop:
    """Join the stops of all questions, or of all walks: `done` if one is done, or else the first."""
    return "done" if "done" in stops else stops[0] if stops else "empty"
