"""Disco-RAG (arXiv 2601.04377): trees within chunks and a graph between them, then a plan that guides the writer.

The trees and the graph do not need each other, so they are made at the same time. An answer waits for three replies in
a row: the slowest of these, the plan, and the writer's.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any, Generic, TypeVar

from keystone.generation.answers.sentences import tidy
from keystone.generation.context.texts import clip, count_tokens, neutralise
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model, keep_languages
from keystone.generation.prompts import readers as prompts
from keystone.generation.readers.disco_rag.relations import (
    INTER,
    INTRA,
    UNRELATED,
    Chunk,
    Found,
    Graph,
    choose_chunks,
    infer_graph,
    list_evidence,
    rank_chunks,
    read_graph,
    show_chunks,
    show_graph,
    shuffle_graph,
    tidy_lines,
)
from keystone.generation.readers.disco_rag.tree_reply import grow_tree, read_tree, show_tree, show_units, shuffle_trees
from keystone.generation.readers.loop import Allowance, Asked, ask_within
from keystone.generation.readers.reader import Tools
from keystone.generation.readers.settings import RhetoricalSettings
from keystone.generation.readers.structure_reader import Question, StructureReader
from keystone.generation.types import EvidenceSet, Failure, Note, Reply, Request, Step, Stop
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.tree import Tree

T = TypeVar("T")

FIRST_WORDS = 8
"""How many words name a chunk in the writer's note."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Chunks, the tree of each (empty if no trees are made), and the graph between them (None if none is made)."""

    chunks: Sequence[Chunk]
    trees: Sequence[Tree] = ()
    graph: Graph | None = None


def show_structures(blueprint: Blueprint) -> str:
    """Show trees and graph as the plan's prompt holds them; empty if there are none."""
    pairs = zip(blueprint.chunks, blueprint.trees, strict=False)
    trees = "\n".join(f"CHUNK[{chunk.number}]: {show_tree(tree)}" for chunk, tree in pairs)
    graph = "" if blueprint.graph is None else show_graph(blueprint.graph) or "none"
    return (prompts.PLAN_TREES.format(trees=trees) if trees else "") + (
        prompts.PLAN_GRAPH.format(graph=graph) if graph else ""
    )


def list_notes(blueprint: Blueprint, plan: str, query_id: str, last: int) -> tuple[Note, ...]:
    """List a note for each tree, which the writer is not shown, and one for the writer.

    The writer's note tells where each chunk is in the documents of the prompt, the relations, and the plan. It exists
    only if there is a graph or a plan. `last` is the number of the reader's last step.
    """
    chunks = blueprint.chunks
    notes = [
        Note(show_tree(tree), (chunk.span,), "tree", chunk.number, query_id)
        for chunk, tree in zip(chunks, blueprint.trees, strict=False)
    ]
    if blueprint.graph or plan:
        lines = [
            f"CHUNK[{one.number}] is the part of document {one.document} that begins "
            f'"{" ".join(one.text.split()[:FIRST_WORDS])}".'
            for one in chunks
        ]
        if shown := show_graph(blueprint.graph) if blueprint.graph else "":
            lines += ["Relations, where the first chunk serves the second:", shown]
        text = "\n".join([*lines, *([f"Plan: {plan}"] if plan else [])])
        kind = "plan" if plan else "graph"
        notes.append(Note(text, tuple(chunk.span for chunk in chunks), kind, last, query_id))
    return tuple(notes)


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A tree or a graph with remarks for its step, and the outcome of the request for it."""

    value: T
    remarks: list[str]
    asked: Asked[Any]


def share_allowance(calls: int, tokens: int, chunks: int) -> list[Allowance]:
    """Share an allowance between the graph, the plan and the tree of each chunk, in this order.

    Calls are dealt out one by one. The graph and the plan see all chunks, so each gets a quarter of the tokens.
    """
    shares = [tokens // 4, tokens // 4, *[tokens // 2 // chunks] * chunks]
    fewest, more = divmod(calls, len(shares))
    return [Allowance(fewest + (place < more), share) for place, share in enumerate(shares)]


async def make_tree(model: Model | None, chunk: Chunk, allowance: Allowance) -> Part[Tree]:
    """Make the tree of a chunk. The reply repeats the chunk, and has about as many relations."""
    tokens, read = 2 * count_tokens(chunk.text) + SPARE_TOKENS, partial(read_tree, text=chunk.text)
    request = prompts.RST_TREE.request(tokens, chunk=show_chunks([chunk]), relations=INTRA)
    return await _make(model and keep_languages(model), request, read, partial(grow_tree, chunk.text), allowance)


async def make_graph(model: Model | None, chunks: Sequence[Chunk], allowance: Allowance) -> Part[Graph]:
    """Make the graph between chunks. One request asks for the relations of all ordered pairs."""
    pairs, read = len(chunks) * (len(chunks) - 1), partial(read_graph, count=len(chunks))
    tokens = EDGE_TOKENS * pairs + SPARE_TOKENS
    request = prompts.RHETORICAL_GRAPH.request(tokens, chunks=show_chunks(chunks), relations=INTER, pairs=pairs)
    return await _make(model, request, read, partial(infer_graph, chunks), allowance)


async def make_plans(
    model: Model | None, question: str, blueprint: Blueprint, allowance: Allowance
) -> list[Asked[str]]:
    """Plan the answer; returns the outcome of each request. Only the last one may be a plan.

    If no reply holds a plan, it is asked for once more without trees and graph. Without a model it is a template.
    """
    if model is None:
        return [Asked(make_plan(blueprint.chunks, blueprint.graph or {}))]
    plans: list[Asked[str]] = []
    for shown in dict.fromkeys(
        [request_plan(question, blueprint), request_plan(question, Blueprint(blueprint.chunks))]
    ):
        plans.append(await ask_within(model, shown, read_plan, allowance))
        if isinstance(plans[-1].found, str):
            break
    return plans


async def _make(
    model: Model | None,
    request: Request,
    read: Callable[[Reply], Found[T]],
    infer: Callable[[], Found[T]],
    allowance: Allowance,
) -> Part[T]:
    """Ask for a part; if there is no model, or no usable reply, rules make it."""
    if model is None:
        made = infer()
        return Part(made.value, made.remarks, Asked(made))
    asked = await ask_within(model, request, read, allowance)
    if isinstance(asked.found, Failure):
        made = infer()
        return Part(made.value, [asked.found.reason, *made.remarks], asked)
    return Part(asked.found.value, asked.found.remarks, asked)


PLAN_TOKENS = 400
"""The most tokens of a plan that the writer is shown."""

_PLAN = re.compile(r"(?:rhetorical )?plan ?[:-] ?|plan\Z", re.IGNORECASE)
_ANSWER = re.compile(r"answer ?:", re.IGNORECASE)


def read_plan(reply: Reply) -> str:
    """Read the paragraph after `PLAN:`, up to a line `ANSWER:`. `Unusable` if there is none, or if it was cut."""
    if reply.finish == "length":
        raise Unusable("it was cut before its end")
    lines = list(tidy_lines(reply))
    for place, line in enumerate(lines):
        if mark := _PLAN.match(line):
            rest = takewhile(lambda one: not _ANSWER.match(one), [line[mark.end() :], *lines[place + 1 :]])
            if plan := clip(tidy(" ".join(rest)), PLAN_TOKENS).rstrip():
                return plan
            break
    raise Unusable("it has no paragraph after PLAN:")


def make_plan(chunks: Sequence[Chunk], graph: Graph) -> str:
    """Make a plan by rules: the chunk closest to the question first, each other one with its tie to one before it."""
    first, *others = rank_chunks(chunks)
    sentences, named = [f"Begin with CHUNK[{first.number}], the closest to the question."], [first.number]
    for chunk in others:
        ties = (
            f"CHUNK[{i}] -> CHUNK[{j}]: {graph[i, j]}"
            for known in named
            for i, j in ((chunk.number, known), (known, chunk.number))
            if graph.get((i, j), UNRELATED) != UNRELATED
        )
        tie = next(ties, "")
        sentences.append(f"Go on with CHUNK[{chunk.number}]" + (f" ({tie})." if tie else ", which stands by itself."))
        named.append(chunk.number)
    return " ".join(sentences)


SPARE_TOKENS = 1024
"""Tokens of each reply for thoughts and for words around what is asked for."""
EDGE_TOKENS = 16
"""Tokens of a reply's line on one pair of chunks."""
PLAN_REPLY_TOKENS = 512
"""Tokens of a reply's plan."""


def request_plan(question: str, blueprint: Blueprint) -> Request:
    """Make the request for the plan. If there are trees, each chunk is shown once, unit by unit."""
    chunks = blueprint.chunks
    lines = [show_units(tree, chunk.text) for tree, chunk in zip(blueprint.trees, chunks, strict=False)]
    return prompts.RHETORICAL_PLAN.request(
        PLAN_REPLY_TOKENS + SPARE_TOKENS,
        question=neutralise(question),
        chunks=show_chunks(chunks, lines),
        structures=show_structures(blueprint),
    )


async def read_rhetorically(tools: Tools, question: Question) -> EvidenceSet:
    """Read the chunks closest to a question: each is evidence, and a note holds their relations and the plan.

    With K chunks these are at most K + 3 requests, each with one repair. If a tree or the graph has no usable reply,
    rules make it. If the plan has none, it is asked for once more without trees and graph; if that fails too, there is
    no plan. The stop is `budget` if a request was not sent, or else `llm_error` if one had no usable reply.
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
        graph = blueprint.graph and shuffle_graph(blueprint.graph, settings.seed)
        blueprint = replace(blueprint, trees=shuffle_trees(blueprint.trees, settings.seed), graph=graph)
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
