"""Battles by the reply contract of RAGDoll's arena: one text shows both answers, and the reply is only a verdict."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.llm.model import Model
from keystone.generation.prompts.evaluation import arena as prompt
from keystone.generation.structured import strip_thought
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unusable

ArenaVerdict = Literal["A", "B", "Tie", "Tie (Both Bad)"]
_REPLY = re.compile(rf"\[\[({'|'.join(map(re.escape, get_args(ArenaVerdict)))})\]\]")


@dataclass(frozen=True, slots=True)
class ShownPair:
    """A request and the answers that are shown as A and as B. `seed` tells repeats of one battle apart."""

    question: str
    a: str
    b: str
    seed: int | None = None


async def judge_shown_pairs(model: Model, pairs: Sequence[ShownPair]) -> list[ArenaVerdict | Failure]:
    """Judge pairs of answers; returns a verdict for each, or the reason why it has none."""
    return await ask_all(model, [(request_verdict(pair), read_arena_verdict) for pair in pairs])


def request_verdict(pair: ShownPair) -> Request:
    """Make the request for the judgment of a pair. A repeat is a sampled reply."""
    temperature = 0.0 if pair.seed is None else 1.0
    messages = (("user", format_instruction(pair)),)
    return Request("arena", messages, prompt.MAX_TOKENS, temperature=temperature, seed=pair.seed)


def format_instruction(pair: ShownPair) -> str:
    """Format the text that shows a pair. It has no name of a system and no citation."""
    first, second = delimit("A", pair.a), delimit("B", pair.b)
    return prompt.USER.format(question=neutralise(pair.question), first=first, second=second)


def read_arena_verdict(reply: Reply) -> ArenaVerdict:
    """Read a verdict. `Unusable` unless the trimmed reply, after its thoughts, is one of the four in full."""
    found = _REPLY.fullmatch(strip_thought(reply.text).strip())
    if found is None:
        raise Unusable(f"it is not exactly one of {', '.join(f'[[{one}]]' for one in get_args(ArenaVerdict))}")
    return found[1]  # type: ignore[return-value]
