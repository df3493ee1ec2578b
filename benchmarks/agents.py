"""(g) Agents of DiscoRAG side by side: eight take about as long as one, because they mostly wait for the model."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import numpy as np

from benchmarks.table import Row, compare_costs, take_turns
from keystone.generation.context.topic import TopicContext
from keystone.generation.llm.model import Model
from keystone.generation.readers.discorag.read import OBSERVATION_SHARE, Agent, explore
from keystone.generation.readers.discorag.tools import Discourse, World
from keystone.generation.readers.loop import Allowance
from keystone.generation.readers.settings import DiscoRagSettings
from keystone.generation.readers.structure_reader import Question
from keystone.generation.types import Reply, Request
from keystone.indexing.embedder import Vectors
from keystone.indexing.structures.discourse import discourse_tree
from keystone.indexing.structures.sections import section_tree
from keystone.indexing.structures.tree import leaves
from keystone.indexing.types import Document

AGENTS, LATENCY_S, REPEATS = 8, 0.2, 3
PARAGRAPHS, DIMENSION = 300, 384
SENTENCE = "In chapter {} the traveller of number {} writes down the name of a city."
CALLS = ("Retrieve[city {}]", "RelationsFrom[{}]", "Ancestors[{}]", "Text[{}]", "Write[{}]")


def rows() -> list[Row]:
    """The time of eight agents beside the time of one, each of twelve steps."""
    agents = _make_agents()
    seconds = take_turns({"one": lambda: _send(agents[:1]), "eight": lambda: _send(agents)}, REPEATS)
    name = (
        f"{AGENTS} agents of {DiscoRagSettings(name='discorag').steps} steps, {LATENCY_S * 1e3:g} ms a call: one agent"
    )
    return [compare_costs(name, seconds["eight"], seconds["one"], 1 / 1.1, "processor time of parsing and tools")]


class _Slow:
    """Replies after the latency, with a different call in each step of each agent."""

    name = "slow"

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply]]:
        for number, request in enumerate(requests):
            await asyncio.sleep(LATENCY_S)
            turns = len(request.messages) // 2 - 1
            call = CALLS[turns % len(CALLS)].format(2 * turns + 1)
            yield number, Reply(f"Thought: I go on.\nAction: {call}")


def _make_agents() -> list[Agent]:
    text = "\n\n".join(" ".join(SENTENCE.format(n, m) for m in range(3)) for n in range(PARAGRAPHS))
    document = Document("d", text)
    tree = discourse_tree(section_tree(document), text)
    own = leaves(tree)
    drawn: Vectors = np.random.default_rng(0).standard_normal((len(own), DIMENSION), np.float32)
    settings = DiscoRagSettings(name="discorag")

    world = World(
        Discourse(document, tree, own, drawn),
        settings.retrieved,
        settings.window // OBSERVATION_SHARE,
        lambda _query: drawn[0],
    )
    context = TopicContext({}, {}, (), drawn[:0])
    question = Question("1", "", "Which cities does the traveller name?", drawn[0], context, ())
    return [Agent(number, own[30 * number].id, question, world, settings) for number in range(AGENTS)]


def _send(agents: list[Agent]) -> None:
    async def send_all(model: Model) -> None:
        found = await asyncio.gather(*(explore(agent, model, Allowance(99, 10**6)) for agent in agents))
        assert all(walk.stop == "max_steps" for walk in found), [walk.stop for walk in found]

    asyncio.run(send_all(_Slow()))
