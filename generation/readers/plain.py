"""The plain reader of Keystone-Docs RAG: documents in the order of their ranking, whole or by their best segments.

The segments of a document stand in the order of its text, as in DOS RAG (arXiv 2506.03989).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from keystone.generation.context.fit_window import show_documents, show_whole_documents
from keystone.generation.readers.gaps import fill_gaps
from keystone.generation.readers.reader import Hits, Task, Tools, list_rows
from keystone.generation.readers.settings import AnswerMethod
from keystone.generation.readers.write import gather_all_sentences, write_answer
from keystone.generation.types import Answer, Evidence, EvidenceSet


@dataclass(frozen=True, slots=True)
class Plain:
    """The plain reader; see the module."""

    tools: Tools

    async def gather(self, task: Task, hits: Hits) -> EvidenceSet:
        """See `keystone.generation.readers.reader.Reader`."""
        tools = self.tools
        items = await asyncio.to_thread(GATHERERS[tools.settings.method], tools, task, hits)
        found = EvidenceSet(tuple(items), stop="done" if items else "empty")
        if items and tools.settings.method == "whole" and tools.search and tools.model:
            found = await fill_gaps(tools, tools.model, task, list_rows(hits), found)
        return found

    async def answer(self, task: Task, evidence: EvidenceSet) -> Answer:
        """See `keystone.generation.readers.reader.Reader`."""
        return await write_answer(self.tools, task, evidence, within=False)


def _gather_sentences(tools: Tools, task: Task, _hits: Hits) -> list[Evidence]:
    """Gather distinct sentences of the task's documents."""
    return gather_all_sentences(tools, task)


def _gather_for_topic(tools: Tools, task: Task, hits: Hits) -> list[Evidence]:
    """Gather the parts of all documents that the model is shown, for all queries together."""
    return [item for rows in hits for item in show_documents(task.context, rows, slice(None), tools.evidence_tokens)]


def _gather_whole(tools: Tools, task: Task, hits: Hits) -> list[Evidence]:
    """Gather the first documents, whole while there is room."""
    return [item for rows in hits for item in show_whole_documents(task.context, rows, tools.evidence_tokens)]


def _gather_for_queries(tools: Tools, task: Task, hits: Hits) -> list[Evidence]:
    """Gather the parts of each query's documents that the model is shown, for that query."""
    return [
        item
        for number, rows in enumerate(hits)
        for item in show_documents(task.context, rows, slice(number, number + 1), tools.evidence_tokens)
    ]


GATHERERS: Mapping[AnswerMethod, Callable[[Tools, Task, Hits], list[Evidence]]] = {
    "rules": _gather_sentences,
    "retrieval": _gather_for_topic,
    "whole": _gather_whole,
    "answers": _gather_for_queries,
    "claims": _gather_for_queries,
}
"""The way in which each method of answers gathers evidence."""
