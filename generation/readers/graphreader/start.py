"""The start of a search: the plan, the facts of chunks, and the choice of the first nodes (sections 3.2 and 3.3.1).

The paper shows the model all keys. Those of 20 documents are too many for a small window, so here it sees the best
rated alone. The request for facts depends on nothing but the chunk, so the cache of replies serves every question about
a document.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TypeVar

from keystone.generation.context.texts import delimit, neutralise
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model, keep_languages
from keystone.generation.prompts import readers as prompts
from keystone.generation.readers.graphreader.material import (
    WORDS_WEIGHT,
    Chunk,
    ChunkFact,
    Material,
    find_parts,
    find_support,
)
from keystone.generation.readers.graphreader.replies import PLAN_TOKENS, disarm, read_facts, read_plan, read_scores
from keystone.generation.readers.loop import Allowance, Asked, ask_within, count_prompt_tokens
from keystone.generation.readers.settings import GraphReaderSettings
from keystone.generation.readers.structure_reader import Question
from keystone.generation.types import Failure, Reply, Step
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.fact_graph import (
    Fact,
    FactGraph,
    find_fact_spans,
    find_key,
    find_neighbours,
)
from keystone.indexing.types import Span

T = TypeVar("T")

THOUGHT_TOKENS = 1024
"""The tokens that a reply may spend on thoughts."""
NODES_TOKENS = 600
"""The tokens of the lines that score nodes."""


async def make_plan(question: Question, model: Model, temperature: float, allowance: Allowance) -> tuple[str, Step]:
    """Ask the model for a plan; it is empty if the model gives none."""
    request = prompts.GRAPH_PLAN.request(PLAN_TOKENS + THOUGHT_TOKENS, question=question.text)
    asked = await ask_within(model, replace(request, temperature=temperature), read_plan, allowance)
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
    best rated keys make up the number.
    """
    question, graph = material.question, material.graph
    candidates = list(rate_keys(material, f"{question.text} {plan}"))[: settings.candidates]
    labels = "\n".join(disarm(graph.labels[key]) for key in candidates)
    tokens, nodes_shown = NODES_TOKENS + THOUGHT_TOKENS, delimit("nodes", labels)
    request = prompts.GRAPH_NODES.request(tokens, question=question.text, plan=plan or "none", nodes=nodes_shown)
    request = replace(request, temperature=settings.temperature)
    read = partial(read_nodes, graph=graph, candidates=candidates)
    asked = await ask_within(keep_languages(model), request, read, allowance)
    scores = {} if isinstance(asked.found, Failure) else asked.found
    degree = {key: len(find_neighbours(graph, key)) for key in scores}
    chosen = sorted(scores, key=lambda key: (-scores[key], -degree[key], graph.labels[key]))
    nodes = list(dict.fromkeys([*chosen, *candidates]))[: settings.nodes]
    action = ", ".join(graph.labels[key] for key in nodes)
    return nodes, record_start(question, "graph_nodes", labels, asked, action)


def read_nodes(reply: Reply, graph: FactGraph, candidates: Sequence[str]) -> dict[str, int]:
    """Read the scored nodes. A node that is not a candidate is dropped. `Unusable` if none is left."""
    found: dict[str, int] = {}
    for written, score in read_scores(reply):
        key = find_key(graph, written, candidates)
        if key is not None:
            found[key] = max(score, found.get(key, 0))
    if not found:
        raise Unusable("none of its nodes stands in the list, in the same words")
    return found


def draw_nodes(material: Material, most: int, chance: Random) -> list[str]:
    """Draw the first nodes at random (paper, Table 4: without node selection)."""
    keys = sorted(material.graph.holders)
    return chance.sample(keys, min(most, len(keys)))


def record_start(question: Question, purpose: str, shown: str, asked: Asked[T], action: str) -> Step:
    """Record a request that no path made: agent 0. The caller numbers the step."""
    cost = asked.prompt_tokens, asked.reply_tokens
    return Step(question.query_id, "", 0, 0, purpose, neutralise(shown), asked.reply, action, asked.reason, (), *cost)


FACTS_TOKENS = 1024
"""The most tokens of the facts of a chunk (paper, Figure 6)."""
REPAIR_TOKENS = 256
"""The tokens of the words that ask for a repair."""


def make_rule_facts(chunks: Sequence[Chunk], facts: Sequence[Sequence[Fact]]) -> dict[int, list[ChunkFact]]:
    """Sort the facts that rules found in each document into its chunks. `facts` has the documents' order."""
    found: dict[int, list[ChunkFact]] = {}
    documents = dict.fromkeys(chunk.row for chunk in chunks)
    by_row = dict(zip(documents, facts, strict=True))
    for chunk in chunks:
        text, doc_id = chunk.document.text, chunk.document.id
        found[chunk.number] = [
            ChunkFact(chunk.number, Span(doc_id, fact.start, fact.end), text[fact.start : fact.end], fact.keys)
            for fact in by_row[chunk.row]
            if chunk.start <= fact.start < chunk.end
        ]
    return found


async def ask_for_facts(
    question: Question, model: Model, chunks: Sequence[Chunk], allowance: Allowance
) -> tuple[dict[int, list[ChunkFact]], list[Step]]:
    """Ask the model for the facts of each chunk; a chunk without usable facts is not in the result.

    The model reads the first chunks, as many as the allowance surely holds with their repairs. The allowance keeps the
    calls and tokens that these chunks do not use.
    """
    work, shares = [], []
    for chunk in chunks:
        shown = delimit("chunk", disarm(chunk.text), disarm(chunk.document.title))
        request = prompts.GRAPH_FACTS.request(FACTS_TOKENS, chunk=shown)
        most = 2 * count_prompt_tokens(request) + 3 * FACTS_TOKENS + REPAIR_TOKENS
        if allowance.calls < 2 or allowance.tokens < most:
            break
        share = Allowance(2, most)
        allowance.take(share)
        shares.append(share)
        work.append(partial(ask_within, keep_languages(model), request, partial(read_chunk_facts, chunk=chunk), share))
    asked: list[Asked[list[ChunkFact]]] = await run_together(work)
    allowance.give_back(shares)
    found = {
        chunk.number: one.found for chunk, one in zip(chunks, asked, strict=False) if not isinstance(one.found, Failure)
    }
    said = {number: f"{len(facts)} facts" for number, facts in found.items()}
    return found, [
        record_start(question, "graph_facts", chunk.id, one, said.get(chunk.number, "facts by rules"))
        for chunk, one in zip(chunks, asked, strict=False)
    ]


def read_chunk_facts(reply: Reply, chunk: Chunk) -> list[ChunkFact]:
    """Read the facts of a chunk. One without a sentence of the chunk to rest on is dropped; `Unusable` if all are."""
    text, doc_id = chunk.document.text, chunk.document.id
    spans = [Span(doc_id, *span) for span in find_fact_spans(text, chunk.start, chunk.end)]
    parts = [find_parts(text[span.start : span.end]) for span in spans]
    facts = [
        ChunkFact(chunk.number, spans[places[0]], fact, keys)
        for fact, keys in read_facts(reply)
        if (places := find_support(fact, parts))
    ]
    if not facts:
        raise Unusable("its facts do not stand in the text")
    return facts
