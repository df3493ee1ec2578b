"""The start of a search: the plan, the candidates among all keys, and the choice of the first nodes (section 3.3.1).

The paper shows the model all keys. Those of 20 documents are too many for a small window, so it sees the best rated.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from keystone.generation.answers.sentences import make_messages
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.llm.model import Model
from keystone.generation.prompts.readers import graphreader as prompt
from keystone.generation.readers.allowance import Allowance, Asked, ask_within
from keystone.generation.readers.graphreader.material import WORDS_WEIGHT, Material, find_parts
from keystone.generation.readers.graphreader.replies import PLAN_TOKENS, disarm, read_plan, read_scores
from keystone.generation.readers.question import Question
from keystone.generation.readers.settings import GraphReaderSettings
from keystone.generation.types import Failure, Reply, Request, Step
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.fact_graph import FactGraph, find_key, find_neighbours

T = TypeVar("T")

THOUGHT_TOKENS = 1024
"""The tokens that a reply may spend on thoughts."""
NODES_TOKENS = 600
"""The tokens of the lines that score nodes."""


async def make_plan(question: Question, model: Model, temperature: float, allowance: Allowance) -> tuple[str, Step]:
    """Ask the model for a plan; it is empty if the model gives none."""
    messages = make_messages(prompt.PLAN_SYSTEM, prompt.PLAN.format(question=question.text))
    request = Request("graph_plan", messages, PLAN_TOKENS + THOUGHT_TOKENS, temperature=temperature)
    asked = await ask_within(model, request, read_plan, allowance)
    plan = "" if isinstance(asked.found, Failure) else asked.found
    return plan, record_start(question, "graph_plan", question.text, asked, "plan" if plan else "no plan")


def rate_keys(material: Material, text: str) -> dict[str, float]:
    """Rate all keys by their closest fact and by the words that they share with a text, best first.

    Ties go to the key with more facts, then to the first in the order of labels.
    """
    asked, graph = find_parts(text), material.graph
    rates = {}
    for key, facts in graph.holders.items():
        parts = find_parts(graph.labels[key])
        shared = len(parts & asked) / max(1, len(parts))
        rates[key] = float(material.closeness[list(facts)].max()) + WORDS_WEIGHT * shared
    order = sorted(rates, key=lambda key: (-rates[key], -len(graph.holders[key]), graph.labels[key]))
    return {key: rates[key] for key in order}


async def choose_nodes(
    material: Material, settings: GraphReaderSettings, model: Model, plan: str, allowance: Allowance
) -> tuple[list[str], Step]:
    """Let the model choose the first nodes among the best rated keys, the highest score first.

    Ties go to the node with more neighbours, then to the first in the order of labels. If the model names too few, the
    best rated keys fill up.
    """
    question, graph = material.question, material.graph
    candidates = list(rate_keys(material, f"{question.text} {plan}"))[: settings.candidates]
    labels = "\n".join(disarm(graph.labels[key]) for key in candidates)
    user = prompt.NODES.format(question=question.text, plan=plan or "none", nodes=delimit("nodes", labels))
    messages = make_messages(prompt.NODES_SYSTEM, user)
    request = Request("graph_nodes", messages, NODES_TOKENS + THOUGHT_TOKENS, temperature=settings.temperature)
    asked = await ask_within(model, request, make_nodes_reader(graph, candidates), allowance)
    scores = {} if isinstance(asked.found, Failure) else asked.found
    degree = {key: len(find_neighbours(graph, key)) for key in scores}
    chosen = sorted(scores, key=lambda key: (-scores[key], -degree[key], graph.labels[key]))
    nodes = list(dict.fromkeys([*chosen, *candidates]))[: settings.nodes]
    action = ", ".join(graph.labels[key] for key in nodes)
    return nodes, record_start(question, "graph_nodes", labels, asked, action)


def make_nodes_reader(graph: FactGraph, candidates: Sequence[str]) -> Callable[[Reply], dict[str, int]]:
    """Make the reader of the scored nodes. A node that is no candidate is dropped."""

    def read(reply: Reply) -> dict[str, int]:
        found: dict[str, int] = {}
        for written, score in read_scores(reply):
            key = find_key(graph, written, candidates)
            if key is not None:
                found[key] = max(score, found.get(key, 0))
        if not found:
            raise Unusable("none of its nodes stands in the list, in the same words")
        return found

    return read


def draw_nodes(material: Material, most: int, chance: Random) -> list[str]:
    """Draw the first nodes at random (paper, Table 4: without node selection)."""
    keys = sorted(material.graph.holders)
    return chance.sample(keys, min(most, len(keys)))


def record_start(question: Question, purpose: str, shown: str, asked: Asked[T], action: str) -> Step:
    """Record a request that no path made: agent 0. The caller numbers the step."""
    problem = asked.found.reason if isinstance(asked.found, Failure) else ""
    cost = asked.prompt_tokens, asked.reply_tokens
    return Step(question.query_id, "", 0, 0, purpose, neutralise(shown), asked.reply, action, problem, (), *cost)
