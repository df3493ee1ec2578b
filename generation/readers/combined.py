"""Readers that combine others: fused evidence, and escalation.

In an escalation the plain reader drafts, and only queries that the draft leaves open go to structure-aware readers. In
each round a check compares every open query with the segments that the draft cites. The next reader then reads for
the queries that are still open, and fusion joins its evidence to the evidence of the draft.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

import numpy as np

from keystone.fusion.fuse import fuse_reciprocal_ranks
from keystone.generation.answers.sentences import read_place
from keystone.generation.context.texts import delimit, neutralise
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model
from keystone.generation.prompts.readers import CHECK_COVERAGE, Coverage
from keystone.generation.readers.loop import Allowance, ask_within
from keystone.generation.readers.reader import Hits, Task, Tools, open_reader
from keystone.generation.readers.settings import (
    LEAST_TOKENS,
    READERS,
    AgentSettings,
    EscalateSettings,
    FusedSettings,
    set_combined,
)
from keystone.generation.readers.structure_reader import WritesFromEvidence, order_by_text, score_by_place
from keystone.generation.readers.write import cut_to_tokens, leave_out_document_numbers
from keystone.generation.replies import read_parts
from keystone.generation.types import Answer, Evidence, EvidenceSet, Failure, Reply, Request, Step, Stop
from keystone.indexing.types import Document, Span, merge_spans

Unit = tuple[str, int]
"""A segment that evidence touches: the document's id, and the segment's number in it."""


@dataclass(frozen=True, slots=True)
class Fused(WritesFromEvidence):
    """Several readers read the same documents; the common writer answers from the fused evidence."""

    tools: Tools

    async def gather(self, task: Task, hits: Hits) -> EvidenceSet:
        """See `keystone.generation.readers.reader.Reader`."""
        settings = self.tools.reader
        assert isinstance(settings, FusedSettings)
        readers = [open_reader(set_reader(self.tools, name)) for name in settings.readers]
        found = await run_together([partial(reader.gather, task, hits) for reader in readers])
        return fuse_evidence(task, found, self.tools, settings.k)


def set_reader(tools: Tools, name: str, **limits: int) -> Tools:
    """Set the reader of tools to one that it combines.

    It makes no further searches: the readers that are combined read the same documents.
    """
    return replace(tools, reader=set_combined(tools.reader, name, **limits), search=None)


def fuse_evidence(task: Task, found: Sequence[EvidenceSet], tools: Tools, k: int) -> EvidenceSet:
    """Fuse the evidence of several readers by reciprocal rank fusion, within the tokens of evidence for an answer.

    The units of fusion are segments, since readers choose stretches of different lengths. Chosen segments that overlap
    or touch become one stretch.
    """
    documents = list(task.context.documents.values())
    by_id = {document.id: document for document in documents}
    each = tools.settings.is_by_query
    items: list[Evidence] = []
    for query_id in dict.fromkeys(item.query_id if each else "" for one in found for item in one.items):
        queries: dict[Unit, str] = {}
        lists: list[list[Unit]] = []
        for one in found:
            lists.append([])
            for item in sorted(one.items, key=lambda item: -item.score):
                if query_id in ("", item.query_id):
                    units = _list_units(item.span, by_id[item.span.doc_id])
                    lists[-1] += units
                    queries = dict.fromkeys(units, item.query_id) | queries
        own = [
            Evidence(
                by_id[doc_id].segments[number].span,
                by_id[doc_id].segment_text(by_id[doc_id].segments[number]),
                score,
                queries[doc_id, number],
            )
            for (doc_id, number), score in fuse_reciprocal_ranks(lists, k)
        ]
        items += order_by_text(_merge(score_by_place(cut_to_tokens(own, tools.evidence_tokens)), by_id), documents)
    return EvidenceSet(
        tuple(items),
        tuple(leave_out_document_numbers(note) for one in found for note in one.notes),
        next((one.stop for one in found if one.stop not in ("done", "empty")), "done") if items else "empty",
        "fused",
        next((one.by for one in found if one.by != "rules"), "rules"),
        tuple(step for one in found for step in one.steps),
    )


def _list_units(span: Span, document: Document) -> list[Unit]:
    """List the segments whose middle a stretch holds, or else the one that it overlaps most."""
    held = [
        number
        for number, segment in enumerate(document.segments)
        if span.start <= (segment.span.start + segment.span.end) // 2 < span.end
    ]
    if not held and document.segments:
        overlaps = [min(span.end, one.span.end) - max(span.start, one.span.start) for one in document.segments]
        held = [overlaps.index(max(overlaps))]
    return [(document.id, number) for number in held]


def _merge(items: Sequence[Evidence], by_id: dict[str, Document]) -> list[Evidence]:
    merged = []
    for doc_id in dict.fromkeys(item.span.doc_id for item in items):
        own = [item for item in items if item.span.doc_id == doc_id]
        for start, end in merge_spans([(item.span.start, item.span.end) for item in own]):
            best = max(item.score for item in own if start <= item.span.start and item.span.end <= end)
            text = by_id[doc_id].text[start:end]
            merged.append(Evidence(Span(doc_id, start, end), text, best, own[0].query_id, why="chosen by fusion"))
    return merged


FUSION_K = 60
"""The k of the fusion of the draft's evidence with that of a further reader."""


@dataclass(frozen=True, slots=True)
class Escalate(WritesFromEvidence):
    """The escalation; see the module."""

    tools: Tools

    async def gather(self, task: Task, hits: Hits) -> EvidenceSet:
        """See `keystone.generation.readers.reader.Reader`."""
        settings = self.tools.reader
        assert isinstance(settings, EscalateSettings)
        allowance = Allowance(settings.calls, settings.tokens)
        evidence = await open_reader(set_reader(self.tools, "plain")).gather(task, hits)
        stop, steps, left = evidence.stop, list[Step](), list(range(len(task.context.queries)))
        for number, name in enumerate(settings.to if evidence.items else ()):
            step, still = await self._check(task, await self.answer(task, evidence), left, allowance)
            steps.append(replace(step, number=number))
            if failed := [value for value in get_args(Stop) if value == step.stop]:
                stop = failed[0]
                break
            if not still or (number and len(still) == len(left)):
                stop = "stalled" if still else "done"
                break
            left = still
            share = allowance.split(len(settings.to) - number)[0]
            if share.calls < len(left) or share.tokens < LEAST_TOKENS * len(left):
                stop = "budget"
                break
            allowance.take(share)
            found = await self._read(name, task, hits, left, share)
            evidence = fuse_evidence(task, [evidence, found], self.tools, FUSION_K)
            stop = "done" if found.stop == "empty" else found.stop
            steps += found.steps
        return replace(evidence, stop=stop, reader="escalate", steps=tuple(steps))

    async def _read(self, name: str, task: Task, hits: Hits, left: Sequence[int], share: Allowance) -> EvidenceSet:
        """Let a reader read for the open queries. Its limits are those of one query, or of all for the agent."""
        parts = 1 if issubclass(READERS[name].settings, AgentSettings) else len(left)
        tools = set_reader(self.tools, name, calls=share.calls // parts, tokens=share.tokens // parts)
        settings = replace(tools.settings, method="answers")
        context = replace(
            task.context,
            queries=[task.context.queries[place] for place in left],
            query_vectors=task.context.query_vectors[list(left)],
        )
        each = self.tools.settings.is_by_query
        own_hits = tuple(hits[place] if each else hits[0] for place in left)
        reader = open_reader(replace(tools, model=self.tools.asks, settings=settings))
        return await reader.gather(replace(task, context=context), own_hits)

    async def _check(
        self, task: Task, draft: Answer, left: Sequence[int], allowance: Allowance
    ) -> tuple[Step, list[int]]:
        """Check which of the queries the segments that a draft cites leave open; returns the step and these queries."""
        cited = draft.list_citations()
        shown = "\n".join(task.context.queries[place].question for place in left)
        if self.tools.asks is None:
            still = await asyncio.to_thread(self._find_far_queries, task, cited, left)
            step = Step("", "", 0, 0, "check", shown, "", "")
        else:
            step, still = await self._ask_for_open_queries(self.tools.asks, task, cited, left, allowance)
        names = ", ".join(task.context.queries[place].id for place in still) or "none"
        return replace(step, shown=shown, action=f"open: {names}"), still

    def _find_far_queries(self, task: Task, cited: Sequence[str], left: Sequence[int]) -> list[int]:
        assert isinstance(self.tools.reader, EscalateSettings)
        vectors = [
            vector
            for row, document in task.context.documents.items()
            for segment, vector in zip(document.segments, task.context.segments[row], strict=True)
            if segment.id in cited
        ]
        if not vectors:
            return list(left)
        cosines = (task.context.query_vectors[list(left)] @ np.array(vectors).T).max(axis=1)
        return [place for place, cosine in zip(left, cosines, strict=True) if cosine < self.tools.reader.least_cosine]

    async def _ask_for_open_queries(
        self, model: Model, task: Task, cited: Sequence[str], left: Sequence[int], allowance: Allowance
    ) -> tuple[Step, list[int]]:
        """Ask the model which queries the cited segments leave open. Without a usable reply, none counts as open."""
        passages = [
            document.segment_text(segment)
            for document in task.context.documents.values()
            for segment in document.segments
            if segment.id in cited
        ]
        request = request_check(passages, [task.context.queries[place].question for place in left])
        asked = await ask_within(model, request, lambda reply: read_open(reply, len(left)), allowance)
        still = [] if isinstance(asked.found, Failure) else [left[place] for place in asked.found]
        cost = asked.prompt_tokens, asked.reply_tokens
        return Step("", "", 0, 0, "check", "", asked.reply, "", "", (), *cost, asked.stop), still


def request_check(passages: Sequence[str], queries: Sequence[str]) -> Request:
    """Make the request for the queries that passages answer. Both are numbered from 0."""
    documents = "\n\n".join(delimit(number, text) for number, text in enumerate(passages))
    lines = (json.dumps({"id": id, "text": neutralise(text)}, ensure_ascii=False) for id, text in enumerate(queries))
    return CHECK_COVERAGE.request(documents=documents or "(none)", queries="\n".join(lines))


def read_open(reply: Reply, number: int) -> list[int]:
    """Read the numbers of the queries that a reply does not call fully answered. `Unusable` without a list."""
    full = {read_place(item.id, number) for item in read_parts(reply, "queries", Coverage) if item.support == "full"}
    return [place for place in range(number) if place not in full]
