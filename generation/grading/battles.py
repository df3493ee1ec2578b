"""Battles of two answers by a model, in both orders: verdicts, marks and reasons."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.grading.rate_answers import AnswerPair
from keystone.generation.llm.model import Model
from keystone.generation.prompts.evaluation import battle as prompt
from keystone.generation.structured import read_json
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unusable

Verdict = Literal["A", "B", "tie"]


@dataclass(frozen=True, slots=True)
class Battle:
    """The model's judgment of two answers, of which A was shown first. Marks are from 1 to 5."""

    verdict: Verdict
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
    value = read_json(reply, lambda one: isinstance(one, dict) and "better" in one)
    found = value if isinstance(value, dict) else {}
    said = str(found.get("better")).strip().lower()
    verdict = next((one for one in prompt.VERDICTS if said == one.lower()), "")
    if not verdict:
        raise Unusable('it holds no "better" that is A, B or tie')
    first, second, reason = _read_mark(found, "a"), _read_mark(found, "b"), found.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        raise Unusable('it holds no "reason"')
    if (verdict == "A" and first < second) or (verdict == "B" and second < first):
        raise Unusable(f"it prefers {verdict}, but marks {verdict} lower")
    return Battle(verdict, first, second, " ".join(reason.split()))  # type: ignore[arg-type]


def _read_mark(found: dict[str, Any], key: str) -> int:
    mark = found.get(key)
    if type(mark) is not int or not prompt.LEAST_MARK <= mark <= prompt.MOST_MARK:
        raise Unusable(f'it holds no mark from {prompt.LEAST_MARK} to {prompt.MOST_MARK} under "{key}"')
    return mark
