"""Disco-RAG (arXiv 2601.04377): trees within chunks and a graph between them, then a plan that guides the writer.

The trees and the graph do not need each other, so they are made at one time. An answer waits for three replies in a
row: the slowest of these, the plan, and the writer's.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from keystone.generation.ask import run_together
from keystone.generation.readers.allowance import Asked
from keystone.generation.readers.disco_rag.chunks import choose_chunks, list_evidence, show_chunks
from keystone.generation.readers.disco_rag.graph import Graph, show_graph
from keystone.generation.readers.disco_rag.parts import (
    Blueprint,
    Part,
    list_notes,
    make_graph,
    make_plans,
    make_tree,
    share_allowance,
    show_structures,
    shuffle_labels,
)
from keystone.generation.readers.disco_rag.tree_reply import show_tree
from keystone.generation.readers.reader import Tools
from keystone.generation.readers.settings import RhetoricalSettings
from keystone.generation.readers.structure_reader import Question, StructureReader
from keystone.generation.types import EvidenceSet, Failure, Step, Stop
from keystone.indexing.structures.tree import Tree


async def read_rhetorically(tools: Tools, question: Question) -> EvidenceSet:
    """Read the chunks closest to a question: each is evidence, and a note holds their relations and the plan.

    With K chunks these are at most K + 3 requests, each with one repair. If a tree or the graph has no usable reply,
    rules make it. If the plan has none, it is asked for once more without trees and graph; then there is no plan.
    The stop is `budget` if a request was not sent, or else `llm_error` if one had no usable reply.
    """
    settings = tools.reader
    assert isinstance(settings, RhetoricalSettings)  # the table of readers gives no others
    chunks = choose_chunks(question, settings.chunks, tools.evidence_tokens)
    if not chunks:
        return EvidenceSet((), stop="empty")
    graph_share, plan_share, *tree_shares = share_allowance(settings.calls, settings.tokens, len(chunks))
    work: list[Callable[[], Awaitable[Part[Any]]]] = []
    if settings.tree:
        work += [partial(make_tree, tools.asks, *one) for one in zip(chunks, tree_shares, strict=True)]
    if settings.graph and len(chunks) > 1:
        work.append(partial(make_graph, tools.asks, chunks, graph_share))
    parts = await run_together(work)
    trees: list[Part[Tree]] = parts[: len(chunks)] if settings.tree else []
    graphs: list[Part[Graph]] = parts[len(trees) :]
    blueprint = Blueprint(chunks, [part.value for part in trees], graphs[0].value if graphs else None)
    if settings.perturbed:
        blueprint = shuffle_labels(blueprint, settings.seed)
    plans = await make_plans(tools.asks, question.text, blueprint, plan_share) if settings.plan else []
    plan = next((asked.found for asked in plans if isinstance(asked.found, str)), "")
    stop = _find_stop([*(part.asked for part in parts), *plans])
    steps = [
        Step("", "", 0, 0, "chunks", show_chunks(chunks), "", "read", added=tuple(chunk.span for chunk in chunks)),
        *(
            _record("rst_tree", part, show_tree(part.value), f"CHUNK[{chunk.number}]", chunk.span.doc_id)
            for part, chunk in zip(trees, chunks, strict=False)
        ),
        *(_record("rhetorical_graph", part, show_graph(part.value), "all chunks") for part in graphs),
        *_record_plans(plans, blueprint),
    ]
    steps[-1] = replace(steps[-1], stop=stop)
    return EvidenceSet(
        list_evidence(chunks, question.query_id),
        list_notes(blueprint, plan, question.query_id, len(steps) - 1),
        stop,
        steps=tuple(replace(step, query_id=question.query_id, number=number) for number, step in enumerate(steps)),
    )


DiscoRag = partial(StructureReader, read_rhetorically)
"""The reader `disco_rag`."""


def _record(purpose: str, part: Part[Any], action: str, shown: str, doc_id: str = "") -> Step:
    return Step(
        *("", doc_id, 0, 0, purpose, shown, part.asked.reply, action, "; ".join(part.remarks)),
        prompt_tokens=part.asked.prompt_tokens,
        reply_tokens=part.asked.reply_tokens,
    )


def _record_plans(plans: Sequence[Asked[str]], blueprint: Blueprint) -> Iterable[Step]:
    for asked, shown in zip(plans, (show_structures(blueprint), "no structures"), strict=False):
        plan = "" if isinstance(asked.found, Failure) else asked.found
        part = Part(plan, [asked.reason] if asked.reason else [], asked)
        yield _record("rhetorical_plan", part, plan, shown.strip())


def _find_stop(asked: Sequence[Asked[Any]]) -> Stop:
    stops = {one.stop for one in asked}
    return "budget" if "budget" in stops else "llm_error" if "llm_error" in stops else "done"
