"""The plain reader of Keystone-Docs RAG: documents in the order of their ranking, whole or by their best segments.

The segments of a document stand in the order of its text, as in DOS RAG (arXiv 2506.03989).

The method `whole` reads documents in the order of the last ranking. What they leave open is searched for once more,
under other names, and the documents that are found are read as well.
"""

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import assert_never

from keystone.generation.answers.answer import AnswerTask, check_evidence
from keystone.generation.context.topic import (
    TopicContext,
    read_context,
    show_documents,
    show_whole_documents,
    skip_blank,
)
from keystone.generation.llm.model import Model
from keystone.generation.queries.compose import is_narrative_query
from keystone.generation.readers.reader import Hits, Task, Tools, list_rows
from keystone.generation.readers.write import gather_all_sentences, make_passages, make_word_range, write_answer
from keystone.generation.types import Answer, Evidence, EvidenceSet, QuestionCheck
from keystone.retrieval.types import Query


@dataclass(frozen=True, slots=True)
class Plain:
    """The plain reader; see the module."""

    tools: Tools

    async def gather(self, task: Task, hits: Hits) -> EvidenceSet:
        """See `keystone.generation.readers.reader.Reader`."""
        tools = self.tools
        items = await asyncio.to_thread(gather, tools, task, hits)
        found = EvidenceSet(tuple(items), stop="done" if items else "empty")
        if items and tools.settings.method == "whole" and tools.search and tools.model:
            found = await fill_gaps(tools, tools.model, task, list_rows(hits), found)
        return found

    async def answer(self, task: Task, evidence: EvidenceSet) -> Answer:
        """See `keystone.generation.readers.reader.Reader`."""
        return await write_answer(self.tools, task, evidence, within=False)


def gather(tools: Tools, task: Task, hits: Hits) -> list[Evidence]:
    """Gather evidence for the method of the answer: sentences, whole documents, or their parts for the queries."""
    method, tokens = tools.settings.method, tools.evidence_tokens
    match method:
        case "rules":
            return gather_all_sentences(tools, task)
        case "whole":
            return [item for rows in hits for item in show_whole_documents(task.context, rows, tokens)]
        case "retrieval" | "answers" | "claims":
            found = []
            for number, rows in enumerate(hits):
                queries = slice(number, number + 1) if tools.settings.is_by_query else slice(None)
                found += show_documents(task.context, rows, queries, tokens)
            return found
        case _:
            assert_never(method)


ADDED_DOCUMENTS: Mapping[str, int] = {"answered": 0, "partly": 1, "not": 2}
"""How many of the first documents of each new search are read, by how far its question is answered."""


async def fill_gaps(tools: Tools, model: Model, task: Task, rows: Sequence[int], evidence: EvidenceSet) -> EvidenceSet:
    """Check how far the evidence answers each question, and add documents for the open ones, `rounds` times.

    `rows` are the documents of the evidence, best first. The model sees added documents after them. In the window,
    however, they have room before those documents that answer no question.
    """
    asked = [query for query in task.context.queries if not is_narrative_query(query)]
    for _ in range(tools.settings.rounds if asked else 0):
        passages = make_passages(task.context, evidence.items)
        whole = AnswerTask(task.topic.id, task.topic.narrative, passages, make_word_range(task.words), queries=asked)
        documents = {document.id: document for document in task.context.documents.values()}
        checks, missed = await check_evidence(model, whole, documents, [item.span for item in evidence.items])
        first, last = (evidence.checks, checks) if evidence.checks else (checks, ())
        evidence = replace(evidence, checks=first, rechecks=last, fallbacks=(*evidence.fallbacks, *missed))
        added = await find_documents(tools, rows, list_searches(asked, checks))
        if not added:
            break
        task = replace(task, context=await _read_more(tools, task, added))
        quoted = {check.quote.doc_id for check in checks if check.quote}
        items = choose_evidence(task.context, [*rows, *added], quoted, added, tools.evidence_tokens)
        ids = (*evidence.added, *(task.context.documents[row].id for row in added))
        shown = {item.span.doc_id for item in items}
        evidence = replace(evidence, items=tuple(items), added=tuple(one for one in ids if one in shown))
        rows = [*rows, *added]
    return evidence


async def find_documents(
    tools: Tools, rows: Sequence[int], searches: Sequence[tuple[Query, QuestionCheck]]
) -> list[int]:
    """Search for open questions; returns the rows of new documents with a text, those of the first search first."""
    if not searches or tools.search is None:
        return []
    found = await tools.search([query for query, _ in searches])
    store, new = tools.sources.store, dict[int, None]()
    for own, (_, check) in zip(found, searches, strict=True):
        most = ADDED_DOCUMENTS[check.found]
        new |= dict.fromkeys((await asyncio.to_thread(skip_blank, store, own, most))[:most])
    known = set(store.ids(rows))
    return [row for row, doc_id in zip(new, store.ids(list(new)), strict=True) if doc_id not in known]


async def _read_more(tools: Tools, task: Task, rows: Sequence[int]) -> TopicContext:
    """Read further documents into a topic's context, after its own."""
    context = task.context
    more = await asyncio.to_thread(read_context, tools.sources, rows, context.queries)
    more = task.narrow(more) if task.narrow else more
    return replace(
        context, documents={**context.documents, **more.documents}, segments={**context.segments, **more.segments}
    )


def choose_evidence(
    context: TopicContext, rows: Sequence[int], quoted: AbstractSet[str], added: Sequence[int], tokens: int
) -> list[Evidence]:
    """Choose what the model is shown of the documents in these rows, in their order, within `tokens` tokens.

    Documents with an id in `quoted` have room first, then the `added` ones, then the others.
    """
    first = [row for row in rows if context.documents[row].id in quoted]
    shown = show_whole_documents(context, list(dict.fromkeys([*first, *added, *rows])), tokens)
    place = {context.documents[row].id: number for number, row in enumerate(rows)}
    return sorted(shown, key=lambda item: place[item.span.doc_id])


def list_searches(queries: Sequence[Query], checks: Sequence[QuestionCheck]) -> list[tuple[Query, QuestionCheck]]:
    """List the further searches for open questions: by the texts of the check, else by the question's own terms."""
    found = []
    for query, check in zip(queries, checks, strict=False):
        terms = (" ".join(query.ask.terms),) if query.ask and query.ask.terms else ()
        for number, text in enumerate(check.searches or terms, start=1):
            if check.found != "answered":
                found.append((query.search_by(text, f"{query.id}+{number}"), check))
    return found
