"""Battles of two answers by a model, in both orders: verdicts, marks and reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.grading.rate_answers import AnswerPair
from keystone.generation.llm.model import Model
from keystone.generation.prompts.evaluation import battle as prompt
from keystone.generation.reply_types import read_part
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unusable


@dataclass(frozen=True, slots=True)
class Battle:
    """The model's judgment of two answers, of which A was shown first. Marks are from 1 to 5."""

    verdict: prompt.Verdict
    mark_a: int
    mark_b: int
    reason: str


BothOrders = tuple[Battle | Failure, Battle | Failure]
"""The battle with `one` of a pair as A, then the battle with `other` as A."""


async def judge_battles(model: Model, pairs: Sequence[AnswerPair]) -> list[BothOrders]:
    """Judge each pair in both orders. No name of a system and no citation is shown."""
    orders = [(pair.question, *order) for pair in pairs for order in ((pair.one, pair.other), (pair.other, pair.one))]
    found = await ask_all(model, [(request_battle(*order), read_battle) for order in orders])
    return list(zip(found[::2], found[1::2], strict=True))


def request_battle(question: str, first: str, second: str) -> Request:
    """Make the request for the judgment of two answers, shown as A and B."""
    asked = prompt.USER.format(question=neutralise(question), first=delimit("A", first), second=delimit("B", second))
    return Request("battle", (("system", prompt.SYSTEM), ("user", asked)), prompt.MAX_TOKENS, prompt.SCHEMA)


def read_battle(reply: Reply) -> Battle:
    """Read a judgment. `Unusable` if a part is missing, or if the better answer has the lower mark."""
    found = read_part(reply, prompt.Judgment, lambda one: "better" in one)
    if found.better is None:
        raise Unusable('it holds no "better" that is A, B or tie')
    if found.a is None or found.b is None:
        marks, key = f"{prompt.LEAST_MARK} to {prompt.MOST_MARK}", "a" if found.a is None else "b"
        raise Unusable(f'it holds no mark from {marks} under "{key}"')
    if not found.reason or not found.reason.strip():
        raise Unusable('it holds no "reason"')
    if (found.better == "A" and found.a < found.b) or (found.better == "B" and found.b < found.a):
        raise Unusable(f"it prefers {found.better}, but marks {found.better} lower")
    return Battle(found.better, found.a, found.b, " ".join(found.reason.split()))
