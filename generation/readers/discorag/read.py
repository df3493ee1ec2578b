"""The reader DiscoRAG: agents from several leaves whose finds are interleaved, or one of its ways without agents.

An agent walks on one discourse tree, with a scratchpad (section 3.4). The gate finds questions that need more than one
place of a document, by the words of a table. DiscoRAG (sections 3.1 and 5.5) fine-tunes an encoder on 6,500 questions,
and reports F1 0.984. It also says that the encoder relies too much on words such as "why" and "how". Here such words
decide openly. No accuracy is claimed.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.fuse import interleave
from keystone.generation.context.texts import clip, count_tokens
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model
from keystone.generation.prompts import readers as prompts
from keystone.generation.readers.discorag.tools import (
    TOOLS,
    Action,
    Discourse,
    Leaf,
    State,
    Vector,
    World,
    cut_reply,
    rank_leaves,
    read_action,
    read_forest,
    show_leaf,
)
from keystone.generation.readers.loop import Allowance, Asked, Taken, Walk, ask_within, walk
from keystone.generation.readers.reader import Tools
from keystone.generation.readers.settings import DiscoRagSettings
from keystone.generation.readers.structure_reader import Question, StructureReader
from keystone.generation.types import Evidence, EvidenceSet, Failure, Message, Request, Step, Stop
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.discourse import relations_from
from keystone.indexing.structures.tree import leaves, position
from keystone.indexing.types import Span
from keystone.indexing.vectors.embed import embed_queries

REPLY_TOKENS = 300
"""The most tokens of a reply."""
OBSERVATION_SHARE = 4
"""An observation may fill the window divided by this number, and no more."""

_SHOWN_ID = re.compile(r'(?m)<document id="(\d+)">$|node (\d+)')


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent: its number among those of its question, the leaf where it begins, and its surroundings."""

    number: int
    entry: int
    question: Question
    world: World
    settings: DiscoRagSettings


async def explore(agent: Agent, model: Model, allowance: Allowance) -> Walk[State]:
    """Let an agent walk through its tree, and return the leaves that it wrote, in the state of the walk."""
    request = partial(make_request, agent)

    async def decide(state: State, steps: Sequence[Step]) -> Asked[Action]:
        return await ask_within(model, request(state, steps), read_action, allowance)

    async def act(state: State, action: Action | Failure) -> Taken[State]:
        if isinstance(action, Action) and action.tool == "Retrieve":  # it embeds the query
            return await asyncio.to_thread(take_action, agent, state, action)
        return take_action(agent, state, action)

    begin = State(agent.entry).see((), [agent.entry])
    found = await walk(begin, agent.settings.steps, decide, act, request=request)
    first = replace(found.steps[0], shown=show_leaf(agent.world, agent.entry, agent.world.room))
    return replace(found, steps=(first, *found.steps[1:]))


def take_action(agent: Agent, state: State, action: Action | Failure) -> Taken[State]:
    """Carry out an action. If that is impossible, the observation says why and the state stays."""
    tree = agent.world.discourse.tree
    try:
        if isinstance(action, Failure):
            raise Unusable(action.reason)
        if action.tool == "Finish":
            return Taken(state, _make_step(agent, state, state, str(action), ""), done=True)
        if action.tool not in TOOLS:
            raise Unusable(f"there is no tool {action.tool!r}: the tools are {', '.join(TOOLS)} and Finish")
        after, observation = TOOLS[action.tool](agent.world, state, action.argument)
    except Unusable as error:
        said = "" if isinstance(action, Failure) else str(action)
        return Taken(state, _make_step(agent, state, state, said, f"Error: {error}."), valid=False, news=False)
    step = _make_step(agent, state, after, str(action), observation)
    at = state.focus if action.tool == "Retrieve" or not action.argument else tree.ids[0]
    news = (after.named, after.shown, after.written) != (state.named, state.shown, state.written)
    return Taken(after, step, key=f"{at} {action}", news=news)


def make_request(agent: Agent, state: State, steps: Sequence[Step]) -> Request:
    """Make the request for the next action: the question, the entry leaf, and the scratchpad in turns."""
    tree = agent.world.discourse.tree
    written = clip(", ".join(str(id) for id in state.written), REPLY_TOKENS // 4) or "nothing"
    status = prompts.DISCORAG_STATUS.format(written=written, left=agent.settings.steps - len(steps))
    request = prompts.DISCORAG.request(
        REPLY_TOKENS,
        question=agent.question.text,
        first=tree.ids[0],
        last=tree.ids[-1],
        entry=agent.entry,
        text=show_leaf(agent.world, agent.entry, agent.world.room),
    )
    turns = [*request.messages, *make_scratchpad(steps, agent.settings.window - count_tokens(status))]
    role, last = turns.pop()
    return replace(request, messages=(*turns, (role, last + status)))


def make_scratchpad(steps: Sequence[Step], window: int) -> list[Message]:
    """Make turns of the steps, within `window` tokens.

    If they are longer, the oldest steps become an action and ids of nodes. If these are still too long, the oldest
    are left out.
    """
    briefs = [_make_turns(step, shorten=True) for step in steps]
    costs = [_count(brief) for brief in briefs]
    before, left = sum(costs), window
    found: list[list[Message]] = []
    for step, turns, cost in zip(reversed(steps), reversed(briefs), reversed(costs), strict=True):
        before -= cost
        full = _make_turns(step, shorten=False)
        if (whole := _count(full)) <= left - min(before, left // 2):
            turns, cost = full, whole
        if cost > left:
            break
        left -= cost
        found.append(turns)
    return [message for turns in reversed(found) for message in turns]


def _make_turns(step: Step, shorten: bool) -> list[Message]:
    said, observation = clip(cut_reply(step.reply), REPLY_TOKENS) or "...", step.observation
    if shorten:
        ids = dict.fromkeys(leaf or node for leaf, node in _SHOWN_ID.findall(observation))
        said = f"Action: {clip(step.action, REPLY_TOKENS // 8)}"
        observation = prompts.DISCORAG_SHORTENED.format(ids=clip(", ".join(ids), REPLY_TOKENS // 8)) if ids else "-"
    return [("assistant", said), ("user", prompts.DISCORAG_OBSERVED.format(observation=observation))]


def _count(turns: Sequence[Message]) -> int:
    return sum(count_tokens(text) for _, text in turns)


def _make_step(agent: Agent, before: State, after: State, action: str, observation: str) -> Step:
    """Make a step for the trace; the first one shows the entry leaf."""
    discourse = agent.world.discourse
    added = tuple(discourse.find_span(id) for id in after.written[len(before.written) :])
    return Step(
        agent.question.query_id, discourse.document.id, agent.number, 0, "discorag", "", "", action, observation, added
    )


LEAVES_OF_INNER_NODE = 5
"""The most leaves that an inner node brings in (DISRetrieval)."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Leaves of the tree at `place` in its forest, by id and best first, that one node brings in, and the reason."""

    place: int
    node: int
    leaves: tuple[int, ...]
    why: str


def choose_entries(forest: Sequence[Discourse], vector: Vector, settings: DiscoRagSettings) -> list[Leaf]:
    """Choose the leaves closest to the question, at most `entries_per_document` in one document.

    If there are too few documents for `entries` leaves, each document gets an equal share of the leaves instead.
    """
    share = -(-settings.entries // max(len(forest), 1))
    most = max(settings.entries_per_document, share)
    found: list[Leaf] = []
    counts = Counter[int]()
    for place, id in rank_leaves(forest, vector):
        if counts[place] < most and len(found) < settings.entries:
            counts[place] += 1
            found.append((place, id))
    return found


def pick_closest(forest: Sequence[Discourse], vector: Vector, settings: DiscoRagSettings) -> list[Pick]:
    """Pick the leaves closest to the question: Vanilla RAG (paper, section 5.1.1)."""
    ranked = rank_leaves(forest, vector)[: settings.kept]
    return [Pick(place, id, (id,), "closest to the question") for place, id in ranked]


def pick_with_neighbours(forest: Sequence[Discourse], vector: Vector, settings: DiscoRagSettings) -> list[Pick]:
    """Pick each entry leaf and its neighbours in the text, the nearest first: ExpansionRAG (paper, section 5.1.1)."""
    found = []
    for place, id in choose_entries(forest, vector, settings):
        ids = [leaf.id for leaf in forest[place].leaves]
        at = ids.index(id)
        around = [at, *(to for step in range(1, settings.neighbours + 1) for to in (at - step, at + step))]
        near = tuple(ids[to] for to in around if 0 <= to < len(ids))
        found.append(Pick(place, id, near, f"beside entry leaf {id}"))
    return found


def pick_by_nodes(forest: Sequence[Discourse], vector: Vector, settings: DiscoRagSettings) -> list[Pick]:
    """Pick leaves by the closeness of all nodes to the question (`rest_topk` of DISRetrieval). It asks no model.

    A leaf brings in itself. An inner node brings in its closest leaves that are not yet taken, in text order. An inner
    node is as close as the mean of its leaves' vectors.
    """
    bounds = [_bound_leaves(discourse) for discourse in forest]
    scores = [_rate(discourse, bound, vector) for discourse, bound in zip(forest, bounds, strict=True)]
    ranked = sorted((-score, place, at) for place, rated in enumerate(scores) for at, score in enumerate(rated))
    found: list[Pick] = []
    taken: set[Leaf] = set()
    for _, place, at in ranked:
        first, last = bounds[place][:, at].tolist()
        cosines = forest[place].vectors[first:last] @ vector
        ids = [leaf.id for leaf in forest[place].leaves[first:last]]
        free = [to for to in np.argsort(-cosines, kind="stable").tolist() if (place, ids[to]) not in taken]
        node = forest[place].tree.ids[at]
        for to in sorted(free[:LEAVES_OF_INNER_NODE]):
            taken.add((place, ids[to]))
            found.append(Pick(place, node, (ids[to],), f"brought in by node {node}"))
        if len(found) >= settings.kept:
            break
    return found[: settings.kept]


def find_nearest_leaves(discourse: Discourse, entry: int, most: int) -> tuple[int, ...]:
    """Find an entry leaf and its nearest siblings; an inner sibling gives its leaf nearest in the text."""
    found = [entry]
    for sibling in relations_from(discourse.tree, entry, most):
        below = leaves(discourse.tree, sibling.id)
        found.append(below[0 if sibling.id > entry else -1].id)
    return tuple(found)


def _bound_leaves(discourse: Discourse) -> NDArray[np.int64]:
    """Find the places of the leaves below each node: int64[2, nodes], the first place and the one after the last."""
    positions = [position(discourse.tree, leaf.id) for leaf in discourse.leaves]
    return np.searchsorted(positions, [range(len(discourse.tree)), discourse.tree.ends])


def _rate(discourse: Discourse, bounds: NDArray[np.int64], vector: Vector) -> list[float]:
    """Rate the nodes of a tree by the cosine to a vector, in their order."""
    sums = np.cumsum(np.vstack([np.zeros_like(vector), discourse.vectors]), axis=0, dtype=np.float64)
    means = sums[bounds[1]] - sums[bounds[0]]
    lengths = np.maximum(np.linalg.norm(means, axis=1), np.finfo(float).tiny)
    scores: list[float] = (means @ vector.astype(np.float64) / lengths).tolist()
    return scores


PICKS: Mapping[str, Callable[[Sequence[Discourse], Vector, DiscoRagSettings], list[Pick]]] = {
    "expansion": pick_with_neighbours,
    "vanilla": pick_closest,
    "rest_topk": pick_by_nodes,
}
"""The ways to pick leaves without a model, by name."""


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
    steps = []
    for number, one in enumerate(picks):
        discourse, said = forest[one.place], ("", "", f"node {one.node}", one.why)
        added = tuple(map(discourse.find_span, one.leaves))
        steps.append(Step(question.query_id, discourse.document.id, 0, number, method, *said, added))
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
    """Choose the segments closest to the question, documents in turn, as the plain reader does; none overlap."""
    kept: list[Span] = []
    for span in interleave([question.find_closest_segments(row, settings.kept) for row in question.rows]):
        if len(kept) < settings.kept and not any(map(span.overlaps, kept)):
            kept.append(span)
    items = tuple(question.quote(span, why="closest segment") for span in kept)
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
