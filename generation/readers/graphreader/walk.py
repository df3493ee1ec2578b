"""One path through the graph: its state, the steps that it offers, and the effect of each function (section 3.3.2).

The model, rules or chance choose the function of a step.

A path visits each node and reads each chunk at most once. The queue of chunks is first in, first out; the chunk before
or after the one just read goes to its front.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Literal

from keystone.generation.context.texts import count_tokens, delimit, neutralise
from keystone.generation.llm.model import Model
from keystone.generation.prompts import readers as prompts
from keystone.generation.readers.graphreader.material import ChunkFact, Material, find_parts, find_support
from keystone.generation.readers.graphreader.replies import Call, cap_notebook, disarm, find_chunk_numbers, read_step
from keystone.generation.readers.graphreader.start import THOUGHT_TOKENS
from keystone.generation.readers.loop import Allowance, Asked, Taken, Walk, ask_within, walk
from keystone.generation.readers.settings import GraphReaderSettings
from keystone.generation.types import Failure, Reply, Request, Step
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.fact_graph import find_fact_spans, find_key, find_neighbours
from keystone.indexing.types import Span

Kind = Literal["facts", "chunk", "neighbours", "end"]
"""A step shows a node's facts, a chunk, or a node's neighbours. At the end there is no step."""


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
class State:
    """The state of a path. `number` counts the paths of a question from 1; `node` is the current key.

    `view` is the view of the next step; None if nothing is left to see. `seen` are the stretches that the path has been
    shown. `rests` are those that the notebook rests on, each with the step that first showed it.
    """

    number: int
    node: str
    kind: Kind = "facts"
    chunk: int = 0
    queue: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    chunks: tuple[int, ...] = ()
    calls: tuple[str, ...] = ()
    notebook: str = ""
    view: View | None = None
    seen: tuple[Span, ...] = ()
    rests: Mapping[Span, int] = field(default_factory=dict)


Move = tuple[str, Call]
"""A new notebook, or "" for the old one, and a function call that names only what the view offers."""
Choose = Callable[[State, View], Awaitable[Asked[Move]]]
"""Chooses the move of a step, such as `choose_by_model` with all arguments but the last two."""


async def walk_from(
    material: Material, settings: GraphReaderSettings, start: tuple[int, str], choose: Choose
) -> Walk[State]:
    """Walk from a node, given as (number of the path, key), until a function, a limit or the lack of nodes ends it.

    If a reply cannot be used after the repair, a default is chosen: see `choose_default`. A path that ends by a default
    is `invalid`.
    """
    number, node = start

    async def decide(state: State, _steps: Sequence[Step]) -> Asked[Move]:
        assert state.view is not None
        return await choose(state, state.view)

    async def act(state: State, found: Move | Failure) -> Taken[State]:
        assert state.view is not None
        problem = found.reason if isinstance(found, Failure) else ""
        notebook, call = ("", choose_default(material, state.view)) if isinstance(found, Failure) else found
        after, added = write_notebook(state, state.view, notebook, settings.notebook_tokens)
        after = apply_call(material, replace(after, calls=(*state.calls, str(call))), call)
        doc_id = material.get_chunk(state.chunk).document.id if state.kind == "chunk" else ""
        place, purpose = (material.question.query_id, doc_id, state.number, 0), f"graph_step_{state.kind}"
        problem = problem and f"by default: {problem}"
        step = Step(*place, purpose, state.view.shown, "", str(call), problem, added)
        after = find_view(material, after, settings)
        return Taken(after, step, valid=not problem, done=after.view is None)

    first = find_view(material, State(number, node, nodes=(node,)), settings)
    ended = await walk(first, settings.functions, decide, act)
    if ended.stop == "done" and ended.steps[-1].observation:
        return Walk(ended.state, "invalid", (*ended.steps[:-1], replace(ended.steps[-1], stop="invalid")))
    return ended


def find_view(material: Material, state: State, settings: GraphReaderSettings) -> State:
    """Find the next view. If a node's chunks are all read, it has the neighbours; if all are visited, there is none."""
    if state.kind == "end":
        return replace(state, view=None)
    view = show_view(material, state, settings)
    if view is None and state.kind == "facts":
        return find_view(material, replace(state, kind="neighbours"), settings)
    return replace(state, view=view)


def show_view(material: Material, state: State, settings: GraphReaderSettings) -> View | None:
    """Show what the path's next step is about; None if there is nothing to choose."""
    if state.kind == "facts":
        return _show_facts(material, state, settings.chunk_tokens)
    if state.kind == "chunk":
        chunk = material.get_chunk(state.chunk)
        spans = find_fact_spans(chunk.document.text, chunk.start, chunk.end)
        stretches = tuple((Span(chunk.document.id, *span), chunk.document.text[slice(*span)]) for span in spans)
        held = set(material.by_chunk[state.chunk]) & set(material.graph.holders[state.node])
        own = tuple(material.facts[number].span for number in sorted(held))
        return View("chunk", delimit(chunk.id, disarm(chunk.text), disarm(chunk.document.title)), stretches, own)
    found = [key for key in find_neighbours(material.graph, state.node) if key not in state.nodes]
    nodes = tuple(found[: settings.neighbours])
    shown = delimit("neighbours", "\n".join(disarm(material.graph.labels[key]) for key in nodes))
    return View("neighbours", shown, nodes=nodes) if nodes else None


def _show_facts(material: Material, state: State, tokens: int) -> View | None:
    """Show a node's facts by chunk, unread chunks first, in `tokens` tokens; None if all are read."""
    known = {*state.chunks, *state.queue}
    facts = [material.facts[number] for number in material.graph.holders[state.node]]
    shown: dict[int, list[ChunkFact]] = {}
    for fact in sorted(facts, key=lambda fact: (fact.chunk in known, fact.chunk)):  # stable within a chunk
        tokens -= count_tokens(fact.text)
        if tokens >= 0 or not shown:
            shown.setdefault(fact.chunk, []).append(fact)
    blocks = [
        delimit(f"C{chunk}{', already read' if chunk in known else ''}", "\n".join(disarm(one.text) for one in own))
        for chunk, own in shown.items()
    ]
    stretches = tuple((fact.span, fact.text) for own in shown.values() for fact in own)
    unread = tuple(chunk for chunk in shown if chunk not in known)
    return View("facts", "\n".join(blocks), stretches, tuple(span for span, _ in stretches), unread) if unread else None


def apply_call(material: Material, state: State, call: Call) -> State:
    """Apply a function call. `read_chunk` names chunks by their ids, `read_neighbor_node` a neighbour by its label."""
    match call.name:
        case "read_chunk":
            return _read_on(replace(state, queue=(*state.queue, *find_chunk_numbers(call.argument))))
        case "read_previous_chunk" | "read_subsequent_chunk":
            there = material.find_next_chunk(state.chunk, 1 if call.name == "read_subsequent_chunk" else -1)
            if there is None or there in state.chunks:
                return _read_on(state)
            return _read_on(replace(state, queue=(there, *(chunk for chunk in state.queue if chunk != there))))
        case "search_more":
            return _read_on(state)
        case "read_neighbor_node":
            neighbours = find_neighbours(material.graph, state.node)
            node = next(key for key in neighbours if material.graph.labels[key] == call.argument)
            return replace(state, node=node, kind="facts", nodes=(*state.nodes, node))
        case "termination":
            return replace(state, kind="end")
        case _:
            return replace(state, kind="neighbours")


def _read_on(state: State) -> State:
    """Go to the first chunk of the queue, or to the neighbours if the queue is empty."""
    if not state.queue:
        return replace(state, kind="neighbours")
    chunk, *queue = state.queue
    return replace(state, kind="chunk", chunk=chunk, queue=tuple(queue), chunks=(*state.chunks, chunk))


def choose_default(material: Material, view: View) -> Call:
    """Choose the call of a step without the model: the unread chunk with the closest fact; go on; or stop."""
    if view.kind == "facts":
        best = max(view.chunks, key=lambda chunk: (max(material.closeness[material.by_chunk[chunk]]), -chunk))
        return Call("read_chunk", f"C{best}")
    return Call("search_more" if view.kind == "chunk" else "termination")


def write_notebook(state: State, view: View, notebook: str, tokens: int) -> tuple[State, tuple[Span, ...]]:
    """Take over a new notebook, and return the stretches of the view that its new sentences rest on.

    If words do not show them, they are the stretches of the node's facts. If the new notebook is empty, the old one
    stays.
    """
    seen = dict.fromkeys([*state.seen, *(span for span, _ in view.stretches)])
    state = replace(state, seen=tuple(seen))
    if not notebook or notebook == state.notebook:
        return state, ()
    new = cap_notebook(notebook, tokens)
    old = set(_list_sentences(state.notebook))
    parts = [find_parts(text) for _, text in view.stretches]
    places = [place for one in _list_sentences(new) if one not in old for place in find_support(one, parts)]
    added = tuple(dict.fromkeys(view.stretches[place][0] for place in places)) or view.own
    rests = {**dict.fromkeys(added, len(state.calls)), **state.rests}
    return replace(state, notebook=new, rests=rests), added


def _list_sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


REASON_TOKENS = 400
"""The tokens of a reply besides its notebook."""

FUNCTIONS = {
    "facts": ("read_chunk", "stop_and_read_neighbor"),
    "chunk": ("search_more", "read_previous_chunk", "read_subsequent_chunk", "termination"),
    "neighbours": ("read_neighbor_node", "termination"),
}
"""The functions that each kind of step offers (paper, Figures 9 to 11)."""


async def choose_by_model(
    material: Material,
    settings: GraphReaderSettings,
    model: Model,
    plan: str,
    allowance: Allowance,
    state: State,
    view: View,
) -> Asked[Move]:
    """Let the model choose, within an allowance."""
    request = request_step(material, state, view, plan, settings)
    return await ask_within(model, request, partial(read_move, material=material, view=view), allowance)


def request_step(material: Material, state: State, view: View, plan: str, settings: GraphReaderSettings) -> Request:
    """Make the request for a step: question, plan, what the path sees, notebook, and the path's actions so far."""
    offered = prompts.GRAPH_FUNCTIONS[view.kind].format(
        node=disarm(material.graph.labels[state.node]), chunk=f"C{state.chunk}", chunks=_list_ids(view.chunks)
    )
    request = prompts.GRAPH_STEP.request(
        settings.notebook_tokens + REASON_TOKENS + THOUGHT_TOKENS,
        question=material.question.text,
        plan=plan or "none",
        view=view.shown,
        notebook=delimit("notebook", state.notebook),
        actions=neutralise(", ".join(state.calls)) or "none",
        functions=offered,
    )
    return replace(request, temperature=settings.temperature)


def read_move(reply: Reply, material: Material, view: View) -> Move:
    """Read the notebook of a step's reply, and a call that names only what the view offers. `Unusable` without one."""
    notebook, call = read_step(reply)
    if call.name not in FUNCTIONS[view.kind]:
        raise Unusable(f"{call.name} is no function of this step; they are {', '.join(FUNCTIONS[view.kind])}")
    if call.name == "read_chunk":
        named = [number for number in find_chunk_numbers(call.argument) if number in view.chunks]
        if not named:
            raise Unusable(f"read_chunk names none of the chunks {_list_ids(view.chunks)}")
        return notebook, Call(call.name, _list_ids(named))
    if call.name == "read_neighbor_node":
        key = find_key(material.graph, call.argument, view.nodes)
        if key is None:
            raise Unusable("read_neighbor_node does not name a node of the list, in the same words")
        return "", Call(call.name, material.graph.labels[key])
    return notebook if view.kind != "neighbours" else "", Call(call.name)


async def choose_by_rules(material: Material, rates: Mapping[str, float], state: State, view: View) -> Asked[Move]:
    """Let rules choose: the best unread chunk, then the best rated neighbour with a fact in an unread chunk.

    The path ends if no such neighbour is rated above the average key. This is a best-first search.
    """
    if view.kind != "neighbours":
        return Asked(("", choose_default(material, view)))
    average = sum(rates.values()) / max(1, len(rates))
    fresh = [
        key
        for key in view.nodes
        if rates[key] > average
        and any(material.facts[number].chunk not in state.chunks for number in material.graph.holders[key])
    ]
    if not fresh:
        return Asked(("", Call("termination")))
    best = max(fresh, key=lambda key: rates[key])
    return Asked(("", Call("read_neighbor_node", material.graph.labels[best])))


async def choose_neighbours_at_random(
    material: Material, choose: Choose, chance: Random, state: State, view: View
) -> Asked[Move]:
    """Draw each neighbour at random, and leave all other choices to `choose` (paper, Table 4: w/o node selection)."""
    if view.kind != "neighbours":
        return await choose(state, view)
    return Asked(("", Call("read_neighbor_node", material.graph.labels[chance.choice(view.nodes)])))


def _list_ids(chunks: Sequence[int]) -> str:
    return ", ".join(f"C{number}" for number in chunks)
