"""The choice of a step's function: by the model, by rules, or at random."""

from collections.abc import Callable
from random import Random

from generation.answers.sentences import make_messages
from generation.context.delimit import delimit
from generation.llm.model import Model
from generation.prompts import graphreader as prompt
from generation.readers.allowance import Allowance, Spent, ask_within
from generation.readers.graphreader.material import Material
from generation.readers.graphreader.replies import Call, find_chunk_numbers, read_step
from generation.readers.graphreader.start import rate_keys
from generation.readers.graphreader.walk import Choice, Choose, View, Walk
from generation.readers.settings import GraphReaderSettings
from generation.types import Failure, Reply, Request
from indexing.errors import Unusable
from indexing.structures.fact_graph import find_key

REASON_TOKENS = 400
"""The tokens of a reply beside its notebook."""
THOUGHT_TOKENS = 1024
"""The tokens that a reply may spend on thoughts."""

FUNCTIONS = {
    "facts": ("read_chunk", "stop_and_read_neighbor"),
    "chunk": ("search_more", "read_previous_chunk", "read_subsequent_chunk", "termination"),
    "neighbours": ("read_neighbor_node", "termination"),
}
"""The functions that each kind of step offers (paper, Figures 9 to 11)."""


def choose_by_model(
    material: Material, settings: GraphReaderSettings, model: Model, plan: str, allowance: Allowance
) -> Choose:
    """Let the model choose, within an allowance.

    If its reply cannot be used after the repair, a default is chosen: the best unread chunk, `search_more`, or
    `termination`. Without a reply the path ends with `llm_error`.
    """

    async def choose(walk: Walk, view: View) -> Choice:
        default = choose_default(material, view)
        request = request_step(material, walk, view, plan, settings)
        asked = await ask_within(model, request, make_step_reader(material, view), allowance)
        cost = asked.prompt_tokens, asked.reply_tokens
        if isinstance(asked.found, Spent):
            return Choice(default, "budget")
        if not isinstance(asked.found, Failure):
            notebook, call = asked.found
            return Choice(call, None, notebook, "", asked.reply, *cost)
        stop = None if asked.reply else "llm_error"
        return Choice(default, stop, "", f"by default: {asked.found.reason}", asked.reply, *cost)  # type: ignore[arg-type]

    return choose


def request_step(material: Material, walk: Walk, view: View, plan: str, settings: GraphReaderSettings) -> Request:
    """Make the request for a step: question, plan, what the path sees, notebook, and the path's actions so far."""
    offered = prompt.FUNCTIONS[view.kind].format(
        node=material.graph.get_label(walk.node),
        chunk=f"C{walk.chunk}",
        chunks=", ".join(f"C{number}" for number in view.chunks),
    )
    user = prompt.STEP.format(
        question=material.question.text,
        plan=plan or "none",
        view=view.shown,
        notebook=delimit("notebook", walk.notebook),
        actions=", ".join(walk.calls) or "none",
        functions=offered,
    )
    most = settings.notebook_tokens + REASON_TOKENS + THOUGHT_TOKENS
    return Request("graph_step", make_messages(prompt.STEP_SYSTEM, user), most, temperature=settings.temperature)


def make_step_reader(material: Material, view: View) -> Callable[[Reply], tuple[str, Call]]:
    """Make the reader of a step's reply. It returns the notebook and a call that names only what the view offers."""

    def read(reply: Reply) -> tuple[str, Call]:
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
            return "", Call(call.name, material.graph.get_label(key))
        return notebook if view.kind != "neighbours" else "", Call(call.name)

    return read


def choose_by_rules(material: Material) -> Choose:
    """Let rules choose: the best unread chunk, all that is queued, and the best neighbour.

    The path ends if no neighbour is closer to the question than the average key. So it searches the best first.
    """
    rates = rate_keys(material, material.question.text)
    average = sum(rates.values()) / max(1, len(rates))

    async def choose(_walk: Walk, view: View) -> Choice:
        if view.kind != "neighbours":
            return Choice(choose_default(material, view))
        best = max(view.nodes, key=lambda key: rates[key])
        if rates[best] <= average:
            return Choice(Call("termination"))
        return Choice(Call("read_neighbor_node", material.graph.get_label(best)))

    return choose


def choose_neighbours_at_random(material: Material, choose: Choose, chance: Random) -> Choose:
    """Draw each neighbour at random, and leave all other choices to `choose` (paper, Table 4: w/o node selection)."""

    async def draw(walk: Walk, view: View) -> Choice:
        if view.kind != "neighbours":
            return await choose(walk, view)
        return Choice(Call("read_neighbor_node", material.graph.get_label(chance.choice(view.nodes))))

    return draw


def choose_default(material: Material, view: View) -> Call:
    """Choose the call of a step without the model: the unread chunk with the closest fact; go on; or stop."""
    if view.kind == "facts":
        best = max(view.chunks, key=lambda chunk: (max(material.closeness[material.by_chunk[chunk]]), -chunk))
        return Call("read_chunk", f"C{best}")
    return Call("search_more" if view.kind == "chunk" else "termination")


def _list_ids(chunks: "list[int] | tuple[int, ...]") -> str:
    return ", ".join(f"C{number}" for number in chunks)
