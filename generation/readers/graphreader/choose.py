"""The choice of a step's function: by the model, by rules, or at random."""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from keystone.generation.answers.sentences import make_messages
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.llm.model import Model
from keystone.generation.prompts.readers import graphreader as prompt
from keystone.generation.readers.allowance import Allowance, Asked, ask_within
from keystone.generation.readers.graphreader.material import Material
from keystone.generation.readers.graphreader.replies import Call, disarm, find_chunk_numbers, read_step
from keystone.generation.readers.graphreader.start import THOUGHT_TOKENS
from keystone.generation.readers.graphreader.walk import Choose, Move, State, View, choose_default
from keystone.generation.readers.settings import GraphReaderSettings
from keystone.generation.types import Reply, Request
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.fact_graph import find_key

REASON_TOKENS = 400
"""The tokens of a reply beside its notebook."""

FUNCTIONS = {
    "facts": ("read_chunk", "stop_and_read_neighbor"),
    "chunk": ("search_more", "read_previous_chunk", "read_subsequent_chunk", "termination"),
    "neighbours": ("read_neighbor_node", "termination"),
}
"""The functions that each kind of step offers (paper, Figures 9 to 11)."""


def choose_by_model(
    material: Material, settings: GraphReaderSettings, model: Model, plan: str, allowance: Allowance
) -> Choose:
    """Let the model choose, within an allowance."""

    async def choose(state: State, view: View) -> Asked[Move]:
        request = request_step(material, state, view, plan, settings)
        return await ask_within(model, request, make_step_reader(material, view), allowance)

    return choose


def request_step(material: Material, state: State, view: View, plan: str, settings: GraphReaderSettings) -> Request:
    """Make the request for a step: question, plan, what the path sees, notebook, and the path's actions so far."""
    offered = prompt.FUNCTIONS[view.kind].format(
        node=disarm(material.graph.labels[state.node]),
        chunk=f"C{state.chunk}",
        chunks=_list_ids(view.chunks),
    )
    user = prompt.STEP.format(
        question=material.question.text,
        plan=plan or "none",
        view=view.shown,
        notebook=delimit("notebook", state.notebook),
        actions=neutralise(", ".join(state.calls)) or "none",
        functions=offered,
    )
    most = settings.notebook_tokens + REASON_TOKENS + THOUGHT_TOKENS
    return Request("graph_step", make_messages(prompt.STEP_SYSTEM, user), most, temperature=settings.temperature)


def make_step_reader(material: Material, view: View) -> Callable[[Reply], Move]:
    """Make the reader of a step's reply. It returns the notebook and a call that names only what the view offers."""

    def read(reply: Reply) -> Move:
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

    return read


def choose_by_rules(material: Material, rates: Mapping[str, float]) -> Choose:
    """Let rules choose: the best unread chunk, then the best rated neighbour with a fact in an unread chunk.

    The path ends if no such neighbour is rated above the average key. So it searches the best first.
    """
    average = sum(rates.values()) / max(1, len(rates))

    async def choose(state: State, view: View) -> Asked[Move]:
        if view.kind != "neighbours":
            return Asked(("", choose_default(material, view)))
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

    return choose


def choose_neighbours_at_random(material: Material, choose: Choose, chance: Random) -> Choose:
    """Draw each neighbour at random, and leave all other choices to `choose` (paper, Table 4: w/o node selection)."""

    async def draw(state: State, view: View) -> Asked[Move]:
        if view.kind != "neighbours":
            return await choose(state, view)
        return Asked(("", Call("read_neighbor_node", material.graph.labels[chance.choice(view.nodes)])))

    return draw


def _list_ids(chunks: Sequence[int]) -> str:
    return ", ".join(f"C{number}" for number in chunks)
