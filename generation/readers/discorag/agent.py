"""An agent on one discourse tree: its prompt, its scratchpad, and its steps (DiscoRAG, section 3.4)."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from keystone.generation.context.tokens import clip, count_tokens
from keystone.generation.llm.model import Model
from keystone.generation.prompts.readers import discorag as prompts
from keystone.generation.readers.allowance import Allowance, Asked, ask_within
from keystone.generation.readers.discorag.tools import TOOLS, Action, State, World, cut_reply, read_action, show_leaf
from keystone.generation.readers.loop import Taken, Walk, walk
from keystone.generation.readers.settings import DiscoRagSettings
from keystone.generation.readers.structure_reader import Question
from keystone.generation.types import Failure, Message, Request, Step
from keystone.indexing.errors import Unusable

REPLY_TOKENS = 300
"""The most tokens of a reply."""
OBSERVATION_SHARE = 4
"""An observation shows at most one part in so many of the window."""

_SHOWN_ID = re.compile(r'(?m)^<document id="(\d+)">$|node (\d+)')


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

    async def decide(state: State, steps: Sequence[Step]) -> Asked[Action]:
        return await ask_within(model, make_request(agent, state, steps), read_action, allowance)

    async def act(state: State, action: Action | Failure) -> Taken[State]:
        if isinstance(action, Action) and action.tool == "Retrieve":  # it embeds the query
            return await asyncio.to_thread(take_action, agent, state, action)
        return take_action(agent, state, action)

    found = await walk(State(agent.entry).see((), [agent.entry]), agent.settings.steps, decide, act)
    first = replace(found.steps[0], shown=show_leaf(agent.world, agent.entry, agent.world.room))
    return replace(found, steps=(first, *found.steps[1:]))


def take_action(agent: Agent, state: State, action: Action | Failure) -> Taken[State]:
    """Carry out an action. If it cannot be, the observation says why and the state stays."""
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
    status = prompts.STATUS.format(written=written, left=agent.settings.steps - len(steps))
    begin = prompts.USER.format(
        question=agent.question.text,
        first=tree.ids[0],
        last=tree.ids[-1],
        entry=agent.entry,
        text=show_leaf(agent.world, agent.entry, agent.world.room),
    )
    turns = [("user", begin), *make_scratchpad(steps, agent.settings.window - count_tokens(status))]
    role, last = turns.pop()
    return Request("discorag", (("system", prompts.SYSTEM), *turns, (role, last + status)), REPLY_TOKENS)


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
        observation = prompts.SHORTENED.format(ids=clip(", ".join(ids), REPLY_TOKENS // 8)) if ids else "-"
    return [("assistant", said), ("user", prompts.OBSERVED.format(observation=observation))]


def _count(turns: Sequence[Message]) -> int:
    return sum(count_tokens(text) for _, text in turns)


def _make_step(agent: Agent, before: State, after: State, action: str, observation: str) -> Step:
    """Make a step for the trace; the first one shows the entry leaf."""
    discourse = agent.world.discourse
    added = tuple(discourse.find_span(id) for id in after.written[len(before.written) :])
    return Step(
        agent.question.query_id, discourse.document.id, agent.number, 0, "discorag", "", "", action, observation, added
    )
