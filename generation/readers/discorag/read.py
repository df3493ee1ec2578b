"""The reader DiscoRAG: agents from several leaves whose finds are interleaved, or one of its choices without agents.

The gate finds questions that need more than one place of a document, told by words that stand in a table.

DiscoRAG (sections 3.1 and 5.5) fine-tunes an encoder on 6,500 questions, and reports F1 0.984. It also says that the
encoder relies too much on words such as "why" and "how". Here such words decide openly. No accuracy is claimed.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from keystone.fusion.evidence import interleave
from keystone.generation.ask import run_together
from keystone.generation.readers.allowance import Allowance
from keystone.generation.readers.discorag.agent import OBSERVATION_SHARE, Agent, explore
from keystone.generation.readers.discorag.choose import PICKS, Pick, choose_entries, find_nearest_leaves
from keystone.generation.readers.discorag.forest import Discourse, Leaf, Vector, read_forest
from keystone.generation.readers.discorag.tools import State, World
from keystone.generation.readers.loop import Walk
from keystone.generation.readers.question import Question
from keystone.generation.readers.reader import Tools
from keystone.generation.readers.settings import DiscoRagSettings
from keystone.generation.readers.structure_reader import StructureReader
from keystone.generation.types import Evidence, EvidenceSet, Step, Stop
from keystone.indexing.types import Span
from keystone.indexing.vectors.embed import embed_queries

FAILED: frozenset[Stop] = frozenset(("llm_error", "invalid", "budget"))
"""Ends of walks after which an agent that wrote nothing has failed."""
SIBLINGS = 2
"""How many siblings of its entry leaf stand for an agent that wrote nothing."""


async def read_discourse(tools: Tools, question: Question) -> EvidenceSet:
    """Read the documents of a question by their discourse trees, as `structure_reader.Read` describes."""
    settings = cast(DiscoRagSettings, tools.reader)
    if not settings.gate:
        return await _read_forest(tools, question)
    marker = find_marker(question.text)
    gate = Step(question.query_id, "", 0, 0, "gate", "", "", marker or "simple")
    if not marker:
        return choose_plainly(question, settings, gate)
    found = await _read_forest(tools, question)
    return replace(found, steps=(gate, *found.steps))


async def _read_forest(tools: Tools, question: Question) -> EvidenceSet:
    settings = cast(DiscoRagSettings, tools.reader)
    forest = await asyncio.to_thread(read_forest, tools.sources, question)
    if not forest:
        return EvidenceSet((), stop="empty")
    if settings.method == "agents" and tools.asks:
        return await send_agents(tools, question, forest)
    method = "rest_topk" if settings.method == "agents" else settings.method
    return await asyncio.to_thread(pick, forest, question, settings, method)


def pick(forest: Sequence[Discourse], question: Question, settings: DiscoRagSettings, method: str) -> EvidenceSet:
    """Pick leaves without a model by a method of `PICKS`."""
    picks = PICKS[method](forest, question.vector, settings)
    steps = [
        Step(
            question.query_id,
            forest[one.place].document.id,
            0,
            number,
            method,
            "",
            "",
            f"node {one.node}",
            one.why,
            tuple(forest[one.place].find_span(id) for id in one.leaves),
        )
        for number, one in enumerate(picks)
    ]
    return EvidenceSet(merge(forest, question, picks, settings.kept), steps=tuple(steps))


async def send_agents(tools: Tools, question: Question, forest: Sequence[Discourse]) -> EvidenceSet:
    """Send an agent from each entry leaf, side by side, and merge the leaves that they wrote.

    Each has an equal share of the calls and tokens, so no agent takes from another. If there are fewer calls than
    entries, the last entries get no agent. If all agents fail, the leaves closest to the question are the evidence.
    """
    settings = cast(DiscoRagSettings, tools.reader)
    model = tools.asks
    assert model is not None
    entries = choose_entries(forest, question.vector, settings)[: settings.calls]
    shares = Allowance(settings.calls, settings.tokens).split(len(entries))

    def embed(query: str) -> Vector:
        vectors = embed_queries(tools.sources.embedding, [query], tools.sources.threads)
        return vectors.reshape(-1)

    async def send(number: int, leaf: Leaf) -> Walk[State]:
        place, id = leaf
        if len(forest[place].leaves) == 1:
            return Walk(State(id, written=(id,)), "done", ())
        world = World(forest[place], settings.retrieved, settings.window // OBSERVATION_SHARE, embed)
        return await explore(Agent(number, id, question, world, settings), model, shares[number])

    walks = await run_together([partial(send, number, leaf) for number, leaf in enumerate(entries)])
    walked = [one for one in walks if one.steps]
    stop: Stop = "done" if not walked or any(one.stop == "done" for one in walked) else walked[0].stop
    steps = tuple(step for one in walked for step in one.steps)
    if walked and all(one.stop in FAILED and not one.state.written for one in walked):
        picked = pick(forest, question, settings, "vanilla")
        return replace(picked, stop=stop, steps=(*steps, *picked.steps))
    picks = [
        Pick(place, id, one.state.written, f"written by the agent from node {id}")
        if one.state.written
        else Pick(
            place, id, find_nearest_leaves(forest[place], id, SIBLINGS), f"near node {id}, whose agent wrote nothing"
        )
        for (place, id), one in zip(entries, walks, strict=True)
    ]
    return EvidenceSet(merge(forest, question, picks, settings.kept), stop=stop, steps=steps)


def merge(forest: Sequence[Discourse], question: Question, picks: Sequence[Pick], most: int) -> tuple[Evidence, ...]:
    """Merge picks rank by rank into at most `most` pieces of evidence, each leaf once (paper, section 5.1.2)."""
    why: dict[Leaf, str] = {}
    for one in picks:
        for id in one.leaves:
            why.setdefault((one.place, id), one.why)
    kept = interleave([[(one.place, id) for id in one.leaves] for one in picks], most)
    return tuple(
        Evidence(forest[place].find_span(id), forest[place].find_text(id), 0.0, question.query_id, why=why[place, id])
        for place, id in kept
    )


def choose_plainly(question: Question, settings: DiscoRagSettings, gate: Step) -> EvidenceSet:
    """Choose the segments closest to the question, in turn of each document, as the plain reader does; none overlap."""
    kept: list[Span] = []
    for span in interleave([question.find_closest_segments(row, settings.kept) for row in question.rows]):
        if len(kept) < settings.kept and not any(map(span.overlaps, kept)):
            kept.append(span)
    texts = {document.id: document.text for document in question.documents}
    items = tuple(
        Evidence(span, texts[span.doc_id][span.start : span.end], 0.0, question.query_id, why="closest segment")
        for span in kept
    )
    return EvidenceSet(items, stop="done" if items else "empty", steps=(replace(gate, added=tuple(kept)),))


DiscoRag = partial(StructureReader, read_discourse)
"""The reader DiscoRAG, made of `Tools`."""


MARKERS = {
    "several": r"\w+\?.*\?",
    "cause": r"why|caus(?:e[sd]?|ing)|because|reasons?|(?:leads?|led) to|results?|consequences?|effects?|affect\w*|"
    r"impact\w*|influenc\w+",
    "manner": r"how(?!\s+(?:many|much|old|long|far|often|tall|high|big|large|deep|wide|fast|heavy|late|soon|few)\b)",
    "comparison": r"compar\w+|contrast\w*|differ(?:s|ent|ences?)?|similar\w*|versus|vs|whereas|pros and cons",
    "connection": r"relat(?:e[sd]?|ions?|ionships?)|connect\w*|roles?|interact\w*",
    "interpretation": r"themes?|symbol\w*|signific\w+|importan\w+|mean(?:s|ing)?|motiv\w+|attitudes?|personality|"
    r"feel(?:s|ings?)?|portray\w*|represent\w*|impl(?:y|ies|ied|ications?)",
    "development": r"chang(?:e[sd]?|ing)|develop(?:s|ed|ments?)?|evol\w+|throughout|over time",
    "overview": r"summar\w+|plot|overview|descri\w+|explain\w*|discuss\w*|analy\w+|settings?|explor\w+|learn about",
}
"""The patterns of complex questions by class. The classes follow the paper's Table 2; a `how` of quantity is simple."""

_PATTERNS = {name: re.compile(rf"(?i)(?<!\w)(?:{pattern})(?!\w)") for name, pattern in MARKERS.items()}


def find_marker(question: str) -> str:
    """Find the class by which a question is complex, with the text that shows it; empty if the question is simple."""
    for name, pattern in _PATTERNS.items():
        if found := pattern.search(" ".join(question.split())):
            return f"{name}: {found[0]}"
    return ""
