"""The plain reader of Keystone-Docs RAG: documents in the order of their ranking, whole or by their best segments.

It answers by rules, from all documents at once (section 3.2.2), or from an answer to each query (section 3.3). If the
model gives no answer within the track's limits, the reader chooses sentences by rules and records that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from generation.answers.answer import AnswerTask, write_answers
from generation.answers.segments import cite_segments
from generation.answers.sentences import Passage, WordRange
from generation.answers.sub_answers import SubTask, write_sub_answers
from generation.answers.synthesise import SynthesisTask, edit, join_sub_answers, resynthesise, select_edit
from generation.context.fit_window import share_window, show_documents
from generation.context.passages import join_spans
from generation.context.tokens import clip
from generation.context.topic import TopicContext
from generation.llm.model import Model
from generation.readers.reader import AnswerMethod, Hits, Synthesis, Task, Tools
from generation.rules.answer import choose_sentences, find_candidates, gather_sentences, quote_closest_segment
from generation.types import Answer, Evidence, EvidenceSet, Fallback
from indexing.vectors.embed import embed_passages

LEAST_WORDS_SHARE = 0.75
"""The fewest words of an answer as a share of the most: 300 of 400 in the paper."""

Draft = tuple[Answer | None, list[Fallback]]
"""An answer that cites documents, or None, and each step in which the model gave no usable reply."""


@dataclass(frozen=True, slots=True)
class Plain:
    """The plain reader; see the module."""

    tools: Tools

    async def gather(self, task: Task, hits: Hits) -> EvidenceSet:
        """See `generation.readers.reader.Reader`."""
        items = await asyncio.to_thread(ANSWER_METHODS[self.tools.settings.method].gather, self.tools, task, hits)
        return EvidenceSet(tuple(items), stop="done" if items else "empty")

    async def answer(self, task: Task, evidence: EvidenceSet) -> Answer:
        """See `generation.readers.reader.Reader`."""
        write = ANSWER_METHODS[self.tools.settings.method].write
        if write is None:
            return await asyncio.to_thread(_choose_answer, self.tools, task, evidence.items)
        made, fallbacks = await write(self.tools, task, evidence.items)
        if made is None or not task.cut_to_limits(made.sentences):
            items = await asyncio.to_thread(_gather_sentences, self.tools, task, ())
            chosen = await asyncio.to_thread(_choose_answer, self.tools, task, items)
            by_rules = Fallback(task.topic.id, "answer", "its sentences are chosen by rules")
            return replace(chosen, fallbacks=(*fallbacks, by_rules))
        answer, far = await asyncio.to_thread(cite_segments, made, task.context, self.tools.sources)
        kept = task.cut_to_limits(answer.sentences)
        if len(kept) < len(answer.sentences):
            lost = f"{len(answer.sentences) - len(kept)} of {len(answer.sentences)} sentences exceed the track's length"
            far.append(Fallback(task.topic.id, "limits", lost))
        return replace(answer, fallbacks=(*fallbacks, *far))


def _gather_sentences(tools: Tools, task: Task, _hits: Hits) -> list[Evidence]:
    """Gather distinct sentences of the task's documents."""
    return gather_sentences(task.context, find_candidates(task.context, tools.sources))


def _choose_answer(tools: Tools, task: Task, evidence: Sequence[Evidence]) -> Answer:
    """Choose sentences of the evidence by rules, for coverage of the queries."""
    candidates = find_candidates(task.context, tools.sources, evidence)
    made = choose_sentences(task.topic.id, task.context, evidence, candidates, task.words)
    return made if made.sentences else quote_closest_segment(task.topic.id, task.context, task.words)


def _gather_for_topic(tools: Tools, task: Task, hits: Hits) -> list[Evidence]:
    """Gather the parts of all documents that the model is shown, for all queries together."""
    window = tools.settings.window
    return [item for rows in hits for item in show_documents(task.context, rows, slice(None), window)]


def _gather_for_queries(tools: Tools, task: Task, hits: Hits) -> list[Evidence]:
    """Gather the parts of each query's documents that the model is shown, for that query."""
    window = tools.settings.window
    return [
        item
        for number, rows in enumerate(hits)
        for item in show_documents(task.context, rows, slice(number, number + 1), window)
    ]


async def _write_from_all(tools: Tools, task: Task, evidence: Sequence[Evidence]) -> Draft:
    """Write one answer from all documents (paper, section 3.2.2)."""
    passages = _make_passages(task.context, evidence)
    answer_task = AnswerTask(task.topic.id, task.topic.narrative, passages, _get_word_range(task))
    (made,), fallbacks = await write_answers(_require_model(tools), [answer_task])
    return made, fallbacks


async def _write_from_each(tools: Tools, task: Task, evidence: Sequence[Evidence]) -> Draft:
    """Write an answer to each query from its own documents, and one answer from these (paper, section 3.3)."""
    topic, settings = task.topic, tools.settings
    sub_tasks = [
        SubTask(
            topic.id,
            topic.narrative,
            query.question,
            _make_passages(task.context, [item for item in evidence if item.query_id == query.id]),
        )
        for query in task.context.queries
    ]
    sub_answers, fallbacks = await write_sub_answers(_require_model(tools), sub_tasks, settings.prompt_with)
    queries = tuple(one.query for one in sub_tasks)
    synthesis = SynthesisTask(topic.id, topic.narrative, queries, tuple(sub_answers), _get_word_range(task))
    made, missed = await SYNTHESES[settings.synthesis](tools, task, synthesis, [one.passages for one in sub_tasks])
    return made, [*fallbacks, *missed]


async def _edit(tools: Tools, _task: Task, synthesis: SynthesisTask, _shown: Sequence[tuple[Passage, ...]]) -> Draft:
    (made,), missed = await edit(_require_model(tools), [synthesis])
    return made, missed


async def _resynthesise(
    tools: Tools, _task: Task, synthesis: SynthesisTask, passages: Sequence[tuple[Passage, ...]]
) -> Draft:
    by_id = {passage.doc_id: passage for own in passages for passage in own}
    limit = share_window(tools.settings.window, len(by_id))
    shown = [passage._replace(text=clip(passage.text, limit)) for passage in by_id.values()]
    (made,), missed = await resynthesise(_require_model(tools), [synthesis], [shown])
    return made, missed


async def _select_edit(
    tools: Tools, task: Task, synthesis: SynthesisTask, _shown: Sequence[tuple[Passage, ...]]
) -> Draft:
    texts = [sentence.text for sentence in join_sub_answers(synthesis)]
    vectors = await asyncio.to_thread(embed_passages, tools.sources.embedding, texts, tools.sources.threads)
    (made,), missed = await select_edit(_require_model(tools), [synthesis], [task.context.query_vectors], [vectors])
    return made, missed


def _make_passages(context: TopicContext, evidence: Sequence[Evidence]) -> tuple[Passage, ...]:
    """Join the evidence of each document into the passage that the model is shown."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for item in evidence:
        spans.setdefault(item.span.doc_id, []).append((item.span.start, item.span.end))
    by_id = context.by_id
    return tuple(Passage(doc_id, "", join_spans(by_id[doc_id][0], own)) for doc_id, own in spans.items())


def _get_word_range(task: Task) -> WordRange:
    return int(task.words * LEAST_WORDS_SHARE), task.words


def _require_model(tools: Tools) -> Model:
    assert tools.model is not None  # the configuration has been checked
    return tools.model


@dataclass(frozen=True, slots=True)
class _Method:
    """A method's way to gather evidence, and to write an answer from it. None: rules choose sentences."""

    gather: Callable[[Tools, Task, Hits], list[Evidence]]
    write: Callable[[Tools, Task, Sequence[Evidence]], Awaitable[Draft]] | None = None


ANSWER_METHODS: Mapping[AnswerMethod, _Method] = {
    "rules": _Method(_gather_sentences),
    "retrieval": _Method(_gather_for_topic, _write_from_all),
    "answers": _Method(_gather_for_queries, _write_from_each),
}
"""The methods of answers by name."""
SYNTHESES: Mapping[
    Synthesis, Callable[[Tools, Task, SynthesisTask, Sequence[tuple[Passage, ...]]], Awaitable[Draft]]
] = {"edit": _edit, "resynthesise": _resynthesise, "select_edit": _select_edit}
"""The ways from answers to queries to one answer, by name."""
