"""Evidence of several readers for one writer: reciprocal rank fusion over their evidence lists."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from keystone.fusion.evidence import fuse_reciprocal_ranks
from keystone.generation.ask import run_together
from keystone.generation.context.passages import merge_spans
from keystone.generation.readers.reader import Hits, Task, Tools, open_reader
from keystone.generation.readers.settings import READERS, FusedSettings
from keystone.generation.readers.structure_reader import (
    answer_from_evidence,
    cut_to_tokens,
    order_by_text,
    score_by_place,
)
from keystone.generation.types import Answer, Evidence, EvidenceSet
from keystone.indexing.types import Document, Span

Unit = tuple[str, int]
"""A segment that evidence touches: the document's id, and the segment's number in it."""


@dataclass(frozen=True, slots=True)
class Fused:
    """Several readers read the same documents; the common writer answers from the fused evidence."""

    tools: Tools

    async def gather(self, task: Task, hits: Hits) -> EvidenceSet:
        """See `keystone.generation.readers.reader.Reader`."""
        settings = self.tools.reader
        assert isinstance(settings, FusedSettings)
        readers = [open_reader(set_reader(self.tools, name)) for name in settings.readers]
        found = await run_together([partial(reader.gather, task, hits) for reader in readers])
        return fuse_evidence(task, found, self.tools, settings.k)

    async def answer(self, task: Task, evidence: EvidenceSet) -> Answer:
        """See `keystone.generation.readers.reader.Reader`."""
        return await answer_from_evidence(self.tools, task, evidence)


def set_reader(tools: Tools, name: str, **limits: int) -> Tools:
    """Set the reader of tools to another one with its defaults, the same evidence tokens, and some limits.

    It makes no further searches: the readers that are combined read the same documents.
    """
    settings = READERS[name].settings.model_validate(
        {"name": name, "evidence_tokens": tools.reader.evidence_tokens, **limits}
    )
    return replace(tools, reader=settings, search=None)  # type: ignore[arg-type]


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
        tuple(note for one in found for note in one.notes),
        next((one.stop for one in found if one.stop != "done"), "done") if items else "empty",
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
