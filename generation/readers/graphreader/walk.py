"""One path through the graph: its state, the steps that it offers, and the effect of each function (section 3.3.2).

A path visits each node and reads each chunk at most once. The queue of chunks is first in, first out; the chunk before
or after the one just read goes to its front.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from generation.context.delimit import delimit
from generation.context.tokens import clip, count_tokens
from generation.readers.graphreader.material import Material
from generation.readers.graphreader.replies import Call, cap_notebook, disarm, find_chunk_numbers
from generation.readers.graphreader.words import find_parts, find_support
from generation.readers.settings import GraphReaderSettings
from generation.types import Step, Stop
from indexing.corpora.segments import split_sentences
from indexing.structures.fact_graph import find_neighbours
from indexing.structures.facts import find_fact_spans
from indexing.types import Span

Kind = Literal["facts", "chunk", "neighbours"]
"""A step shows a node's facts, a chunk, or a node's neighbours."""


@dataclass(frozen=True, slots=True)
class View:
    """The view of one step: its text, the stretches behind it, and the chunks or nodes that a function may name.

    `own` holds the stretches of the node's facts.
    """

    kind: Kind
    shown: str
    stretches: tuple[tuple[Span, str], ...] = ()
    own: tuple[Span, ...] = ()
    chunks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The function call of a step, or the reason to stop; the new notebook, or "" for the old one; reply and cost.

    `problem` says why the call is not the model's own.
    """

    call: Call
    stop: Stop | None = None
    notebook: str = ""
    problem: str = ""
    reply: str = ""
    prompt_tokens: int = 0
    reply_tokens: int = 0


@dataclass(slots=True)
class Walk:
    """The state of a path. `number` counts the paths of a question from 1; `node` is the current key."""

    number: int
    node: str
    kind: Kind = "facts"
    chunk: int = 0
    queue: deque[int] = field(default_factory=deque)
    nodes: list[str] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    notebook: str = ""
    stop: Stop | None = None
    seen: dict[Span, str] = field(default_factory=dict)
    """The stretches that the path has been shown, with their texts, in the order of reading."""
    rests: dict[Span, int] = field(default_factory=dict)
    """The stretches that the notebook rests on, each with the number of the step that first showed it."""
    steps: list[Step] = field(default_factory=list)


Choose = Callable[[Walk, View], Awaitable[Choice]]
"""Chooses the function call of a step. Its call names only what the view offers."""


async def walk_from(material: Material, settings: GraphReaderSettings, start: tuple[int, str], choose: Choose) -> Walk:
    """Walk from a node, given as (number of the path, key), until a function, a limit or the lack of nodes stops."""
    walk = Walk(*start, nodes=[start[1]])
    while walk.stop is None:
        view = show_view(material, walk, settings)
        if view is None:
            _leave(walk)
            continue
        if len(walk.calls) == settings.functions:
            walk.stop = "max_steps"
            break
        walk.seen |= dict(view.stretches)
        choice = await choose(walk, view)
        added = _write(walk, view, choice.notebook, settings.notebook_tokens)
        walk.stop = choice.stop
        if choice.stop is None:
            walk.calls.append(str(choice.call))
            apply_call(material, walk, choice.call)
        _record(material, walk, view, choice, added)
    walk.steps[-1:] = [replace(step, stop=walk.stop) for step in walk.steps[-1:]]
    return walk


def show_view(material: Material, walk: Walk, settings: GraphReaderSettings) -> View | None:
    """Show what the path's next step is about; None if there is nothing to choose."""
    if walk.kind == "facts":
        return _show_facts(material, walk, settings.chunk_tokens)
    if walk.kind == "chunk":
        chunk = material.get_chunk(walk.chunk)
        spans = find_fact_spans(chunk.document.text, chunk.start, chunk.end)
        stretches = tuple((Span(chunk.document.id, *span), chunk.document.text[slice(*span)]) for span in spans)
        held = set(material.by_chunk[walk.chunk]) & set(material.graph.holders[walk.node])
        own = tuple(material.facts[number].span for number in sorted(held))
        return View("chunk", delimit(chunk.id, disarm(chunk.text), disarm(chunk.document.title)), stretches, own)
    found = [key for key in find_neighbours(material.graph, walk.node) if key not in walk.nodes]
    nodes = tuple(found[: settings.neighbours])
    shown = delimit("neighbours", "\n".join(disarm(material.graph.get_label(key)) for key in nodes))
    return View("neighbours", shown, nodes=nodes) if nodes else None


def _show_facts(material: Material, walk: Walk, tokens: int) -> View | None:
    """Show a node's facts by chunk, the chunks that are not read first; None if all are read."""
    by_chunk: dict[int, list[int]] = {}
    for number in material.graph.holders[walk.node]:
        by_chunk.setdefault(material.facts[number].chunk, []).append(number)
    known = {*walk.chunks, *walk.queue}
    blocks: list[str] = []
    shown: list[int] = []
    for chunk in sorted(by_chunk, key=lambda chunk: (chunk in known, chunk)):
        lines = "\n".join(disarm(material.facts[number].text) for number in by_chunk[chunk])
        cost = count_tokens(lines)
        if not blocks or cost <= tokens:
            name = f"{material.get_chunk(chunk).id}{', already read' if chunk in known else ''}"
            blocks.append(delimit(name, clip(lines, tokens)))
            shown += by_chunk[chunk]
            tokens -= cost
    chunks = tuple(dict.fromkeys(material.facts[number].chunk for number in shown))
    stretches = tuple((material.facts[number].span, material.facts[number].text) for number in shown)
    unread = tuple(chunk for chunk in chunks if chunk not in known)
    own = tuple(span for span, _ in stretches)
    return View("facts", "\n".join(blocks), stretches, own, unread) if unread else None


def apply_call(material: Material, walk: Walk, call: Call) -> None:
    """Let a function call change the path. `read_chunk` has ids of chunks, `read_neighbor_node` a neighbour's label."""
    match call.name:
        case "read_chunk":
            walk.queue.extend(find_chunk_numbers(call.argument))
            _read_on(walk)
        case "read_previous_chunk" | "read_subsequent_chunk":
            there = material.find_next_chunk(walk.chunk, 1 if call.name == "read_subsequent_chunk" else -1)
            if there is not None and there not in walk.chunks:
                if there in walk.queue:
                    walk.queue.remove(there)
                walk.queue.appendleft(there)
            _read_on(walk)
        case "search_more":
            _read_on(walk)
        case "read_neighbor_node":
            neighbours = find_neighbours(material.graph, walk.node)
            walk.node = next(key for key in neighbours if material.graph.get_label(key) == call.argument)
            walk.kind = "facts"
            walk.nodes.append(walk.node)
        case "termination":
            walk.stop = "done"
        case _:
            walk.kind = "neighbours"


def _read_on(walk: Walk) -> None:
    """Go to the first chunk of the queue, or to the neighbours if the queue is empty."""
    walk.kind = "chunk" if walk.queue else "neighbours"
    if walk.queue:
        walk.chunk = walk.queue.popleft()
        walk.chunks.append(walk.chunk)


def _leave(walk: Walk) -> None:
    """Leave a step without a choice: read facts lead to the neighbours. Without neighbours, the path ends."""
    if walk.kind == "neighbours":
        walk.stop = "done"
    walk.kind = "neighbours"


def _write(walk: Walk, view: View, notebook: str, tokens: int) -> tuple[Span, ...]:
    """Take over a new notebook, and return the stretches of the view that its new sentences rest on.

    If words do not show them, they are the stretches of the node's facts.
    """
    if not notebook or notebook == walk.notebook:
        return ()
    old = {walk.notebook[start:end] for start, end in split_sentences(walk.notebook)}
    walk.notebook = cap_notebook(notebook, tokens)
    new = [walk.notebook[start:end] for start, end in split_sentences(walk.notebook)]
    parts = [find_parts(text) for _, text in view.stretches]
    places = [place for sentence in new if sentence not in old for place in find_support(sentence, parts)]
    added = tuple(dict.fromkeys(view.stretches[place][0] for place in places)) or view.own
    for span in added:
        walk.rests.setdefault(span, len(walk.steps))
    return added


def _record(material: Material, walk: Walk, view: View, choice: Choice, added: tuple[Span, ...]) -> None:
    question = material.question
    walk.steps.append(
        Step(
            question.query_id,
            material.get_chunk(walk.chunks[-1]).document.id if view.kind == "chunk" else "",
            walk.number,
            len(walk.steps),
            f"graph_{view.kind}",
            view.shown,
            choice.reply,
            str(choice.call) if choice.stop is None else "",
            choice.problem,
            added,
            choice.prompt_tokens,
            choice.reply_tokens,
        )
    )
