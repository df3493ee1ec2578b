"""GraphReader: agents explore a graph of key elements and atomic facts, each with a notebook (arXiv 2406.14550).

Half of a question's allowance is for the facts of its chunks. The other half, and all that the facts leave, is for the
plan, then for the choice of the first nodes. The paths then share equally what is left.

Without a model the same paths are walked by rules; see `choose_by_rules`. Their evidence is the stretches that they
were shown, those closest to the question first.

The evidence of all paths is the stretches that notebooks rest on, or those closest to the question.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from keystone.generation.context.topic import Sources, embed_spans
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model
from keystone.generation.readers.graphreader.material import Chunk, ChunkFact, Material, list_chunks
from keystone.generation.readers.graphreader.start import (
    ask_for_facts,
    choose_nodes,
    draw_nodes,
    make_plan,
    make_rule_facts,
    rate_keys,
)
from keystone.generation.readers.graphreader.walk import (
    Choose,
    State,
    choose_by_model,
    choose_by_rules,
    choose_neighbours_at_random,
    walk_from,
)
from keystone.generation.readers.loop import Allowance, Walk
from keystone.generation.readers.reader import Tools
from keystone.generation.readers.settings import GraphReaderSettings
from keystone.generation.readers.structure_reader import Question, StructureReader, join_stops
from keystone.generation.types import Evidence, EvidenceSet, Note, Step
from keystone.indexing.structures.cached import read_facts
from keystone.indexing.types import Span


async def read_graph(tools: Tools, question: Question) -> EvidenceSet:
    """Read a question's documents by exploring the graph of their facts."""
    settings = tools.reader
    assert isinstance(settings, GraphReaderSettings)
    allowance = Allowance(settings.calls, settings.tokens)
    chunks, facts = await asyncio.to_thread(_list_facts, tools, question, settings.chunk_tokens)
    plan, steps = "", list[Step]()
    if tools.asks is not None and chunks:
        asked, plan, steps = await _prepare(tools.asks, settings, question, chunks, allowance)
        facts |= asked
    material = Material(question, chunks, tuple(fact for chunk in chunks for fact in facts[chunk.number]))
    walks, chosen = await explore(tools.asks, material, settings, plan, allowance)
    steps = [replace(step, number=number) for number, step in enumerate([*steps, *chosen])]
    paths = [walk.state for walk in walks]
    items = gather_notebooks(material, paths)
    return EvidenceSet(
        tuple(items or await asyncio.to_thread(choose_closest, tools.sources, material, paths)),
        make_notes(material, paths),
        join_stops([walk.stop for walk in walks]),
        steps=(*steps, *(step for walk in walks for step in walk.steps)),
    )


async def explore(
    model: Model | None, material: Material, settings: GraphReaderSettings, plan: str, allowance: Allowance
) -> tuple[list[Walk[State]], list[Step]]:
    """Choose the first nodes, and walk from each. Returns the walks, and the steps that chose the nodes."""
    question, steps = material.question, list[Step]()
    rates = rate_keys(material, question.text)
    seed = f"{settings.seed} {question.topic_id} {question.query_id}"
    if settings.random_nodes:
        nodes = draw_nodes(material, settings.nodes, Random(seed))
    elif model is None or not material.graph.labels:
        nodes = list(rates)[: settings.nodes]
    else:
        nodes, step = await choose_nodes(material, settings, model, plan, allowance)
        steps.append(step)
    work = []
    for number, (node, share) in enumerate(zip(nodes, allowance.split(max(1, len(nodes))), strict=False), 1):
        choose: Choose = partial(choose_by_rules, material, rates)
        if model:
            choose = partial(choose_by_model, material, settings, model, plan, share)
        if settings.random_nodes:
            choose = partial(choose_neighbours_at_random, material, choose, Random(f"{seed} {number}"))
        work.append(partial(walk_from, material, settings, (number, node), choose))
    return await run_together(work), steps


def _list_facts(tools: Tools, question: Question, tokens: int) -> tuple[tuple[Chunk, ...], dict[int, list[ChunkFact]]]:
    chunks = list_chunks(question, tokens)
    documents = {chunk.row: chunk.document for chunk in chunks}
    return chunks, make_rule_facts(chunks, read_facts(tools.sources.index, list(documents.values())))


async def _prepare(
    model: Model, settings: GraphReaderSettings, question: Question, chunks: Sequence[Chunk], allowance: Allowance
) -> tuple[dict[int, list[ChunkFact]], str, list[Step]]:
    """Ask for facts and plan at the same time. Returns the facts of each chunk, the plan and the steps of both."""
    (share, _) = allowance.split(2)
    allowance.take(share)
    work: list[Callable[[], Awaitable[Any]]] = [
        partial(ask_for_facts, question, model, chunks, share),
        partial(make_plan, question, model, settings.temperature, allowance),
    ]
    (facts, steps), (plan, step) = await run_together(work)
    allowance.give_back([share])
    return facts, plan, [*steps, step]


GraphReader = partial(StructureReader, read_graph)
"""The reader GraphReader; see the module."""


MOST_EMBEDDED = 256
"""The most stretches that are compared with the question by their vectors."""


def gather_notebooks(material: Material, paths: Sequence[State]) -> list[Evidence]:
    """Gather the stretches that notebooks rest on: those of the most paths first, then in the order of reading."""
    rank = _rank_documents(material)
    uses = Counter(span for path in paths for span in path.rests)
    first = {span: min(path.rests[span] for path in paths if span in path.rests) for span in uses}
    order = sorted(uses, key=lambda span: (-uses[span], first[span], rank[span.doc_id], span.start, span.end))
    return _make_items(material, [(span, float(uses[span]), f"in {uses[span]} notebooks") for span in order])


def choose_closest(sources: Sources, material: Material, paths: Sequence[State]) -> list[Evidence]:
    """Choose the stretches closest to the question among those shown to the paths; among all if no path was."""
    rank = _rank_documents(material)
    closeness = dict(zip((fact.span for fact in material.facts), material.closeness.tolist(), strict=True))
    seen = list(dict.fromkeys(span for path in paths for span in path.seen)) or list(closeness)
    place = {span: (rank[span.doc_id], span.start, span.end) for span in seen}
    likely = sorted(seen, key=lambda span: (-closeness.get(span, 0.0), place[span]))[:MOST_EMBEDDED]
    if not likely:
        return []
    cosines = embed_spans(sources, material.question.context, likely) @ material.question.vector
    order = sorted(range(len(likely)), key=lambda at: (-float(cosines[at]), place[likely[at]]))
    return _make_items(material, [(likely[at], float(cosines[at]), "close to the question") for at in order])


def make_notes(material: Material, paths: Sequence[State]) -> tuple[Note, ...]:
    """Make a note of each path's notebook, with all stretches that the path was shown as its sources."""
    kept = [path for path in paths if path.notebook]
    return tuple(
        Note(
            f"Notebook of search {number} of {len(kept)}: {path.notebook}",
            path.seen,
            "notebook",
            len(path.calls),
            material.question.query_id,
        )
        for number, path in enumerate(kept, 1)
    )


def _rank_documents(material: Material) -> dict[str, int]:
    return {document.id: rank for rank, document in enumerate(material.question.documents)}


def _make_items(material: Material, found: Sequence[tuple[Span, float, str]]) -> list[Evidence]:
    """Make evidence of stretches, each with its score and reason. A text that repeats is taken once."""
    items: dict[str, Evidence] = {}
    for span, score, why in found:
        item = material.question.quote(span, score, why=why)
        items.setdefault(" ".join(item.text.split()), item)
    return list(items.values())
