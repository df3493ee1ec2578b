"""Judgments of answers by a model: ratings against references, and the better one of two answers.

A battle shows two answers in both orders. It gives verdicts, marks and reasons. By the reply contract of RAGDoll's
arena, one text shows both answers, and the reply is only a verdict.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar, get_args

from keystone.generation.context.texts import delimit, neutralise
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts import evaluation as prompts
from keystone.generation.prompts.evaluation import Choice
from keystone.generation.replies import read_part, strip_thought
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unusable

T = TypeVar("T")
Verdict = Literal["yes", "partially", "no"]

_VERDICT = re.compile(
    r"\W{0,20}(?:(?:answer|verdict|rating)\W{1,4}(?:is\W{1,4})?)?"
    r"(?:(?P<partially>(?:yes\b[^\n]{0,80}?\b)?(?:partial(?:ly)?|in\Wpart))|(?P<yes>yes)|(?P<no>no))\b",
    re.IGNORECASE,
)
"""A verdict at the beginning of a reply. `Yes, partially` is tried before `Yes`."""


@dataclass(frozen=True, slots=True)
class RatedAnswer:
    """A question, the references of experts, and the answer to rate."""

    question: str
    references: Sequence[str]
    answer: str


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """A question and two answers to compare."""

    question: str
    one: str
    other: str


async def rate_answers(model: Model, rated: Sequence[RatedAnswer]) -> list[tuple[float, float] | Failure]:
    """Rate answers; returns LR-1 and LR-2 of each, 0 or 1, or the failure of one of its two ratings.

    A strict and a lenient rater judge each answer. If one of them says yes, the answer is correct. If the strict one
    says no and the lenient one says partially, the answer is partially correct. LR-1 counts correct answers, and LR-2
    counts those and partially correct ones. Source: GraphReader, appendix B; ReadAgent, section 4.1.
    """
    requests = [
        (request_rating(one, strict), partial(read_verdict, strict=strict)) for one in rated for strict in (True, False)
    ]
    verdicts = await ask_all(model, requests)
    return [
        both if isinstance(both, Failure) else (float("yes" in both), float(both[0] == "yes" or both[1] != "no"))
        for both in _join_pairs(verdicts)
    ]


def _join_pairs(found: Sequence[T | Failure]) -> list[tuple[T, T] | Failure]:
    """Join every two outcomes. The failure of one is that of both."""
    return [
        one if isinstance(one, Failure) else other if isinstance(other, Failure) else (one, other)
        for one, other in zip(found[::2], found[1::2], strict=True)
    ]


def request_rating(one: RatedAnswer, strict: bool) -> Request:
    """Make the request of the strict or of the lenient rater."""
    references = "\n\n".join(delimit(f"reference {number}", text) for number, text in enumerate(one.references, 1))
    prompt = prompts.RATE_STRICTLY if strict else prompts.RATE_LENIENTLY
    answer = delimit("answer", one.answer)
    request = prompt.request(question=neutralise(one.question), references=references, answer=answer)
    return replace(request, temperature=prompts.RATER_TEMPERATURE)


def read_verdict(reply: Reply, strict: bool) -> Verdict:
    """Read the verdict at the beginning of a reply. `Unusable` if there is none, or a strict rater says partially."""
    found = _VERDICT.match(strip_thought(reply.text))
    verdict = found and found.lastgroup
    if verdict == "yes" or verdict == "no" or (verdict == "partially" and not strict):
        return verdict  # type: ignore[return-value]
    raise Unusable(f"it does not begin with Yes{'' if strict else ', Yes, partially,'} or No")


async def compare_answers(model: Model, pairs: Sequence[AnswerPair]) -> list[tuple[Choice, Choice] | Failure]:
    """Compare answers in both orders; returns for each pair the choices, or the failure of one of its comparisons.

    The first choice is for `one` as A and `other` as B. The second choice is for the other order, so the same letter
    twice shows a preference for a slot. No name of a system is shown.
    """
    choices = await ask_all(model, [(request_choice(*order), read_choice) for order in _list_orders(pairs)])
    return _join_pairs(choices)


def _list_orders(pairs: Sequence[AnswerPair]) -> list[tuple[str, str, str]]:
    return [(pair.question, *order) for pair in pairs for order in ((pair.one, pair.other), (pair.other, pair.one))]


def request_choice(question: str, first: str, second: str) -> Request:
    """Make the request for the better one of two answers, shown as A and B."""
    return prompts.COMPARE_ANSWERS.request(**_show_pair(question, first, second))


def _show_pair(question: str, first: str, second: str) -> dict[str, str]:
    return {"question": neutralise(question), "first": delimit("A", first), "second": delimit("B", second)}


def read_choice(reply: Reply) -> Choice:
    """Read the choice of a reply. `Unusable` if it is not A, B or tie."""
    return read_part(reply, prompts.Preference, lambda one: isinstance(one.get("better"), str)).better


def score_choices(choices: tuple[Choice, Choice]) -> float:
    """Score `one` of a pair from the choices of both orders: 1 if it wins in both, 0 if it loses in both, else 0.5."""
    return {("A", "B"): 1.0, ("B", "A"): 0.0}.get(choices, 0.5)


@dataclass(frozen=True, slots=True)
class Battle:
    """The model's judgment of two answers, of which A was shown first. Marks are from 1 to 5."""

    verdict: Choice
    mark_a: int
    mark_b: int
    reason: str


BothOrders = tuple[Battle | Failure, Battle | Failure]
"""The battle with `one` of a pair as A, then the battle with `other` as A."""


async def judge_battles(model: Model, pairs: Sequence[AnswerPair]) -> list[BothOrders]:
    """Judge each pair in both orders. No name of a system and no citation is shown."""
    found = await ask_all(model, [(request_battle(*order), read_battle) for order in _list_orders(pairs)])
    return list(zip(found[::2], found[1::2], strict=True))


def request_battle(question: str, first: str, second: str) -> Request:
    """Make the request for the judgment of two answers, shown as A and B."""
    return prompts.BATTLE.request(**_show_pair(question, first, second))


def read_battle(reply: Reply) -> Battle:
    """Read a judgment. `Unusable` if a part is missing, or if the better answer has the lower mark."""
    found = read_part(reply, prompts.Judgment, lambda one: "better" in one)
    if found.better is None:
        raise Unusable('it holds no "better" that is A, B or tie')
    if found.a is None or found.b is None:
        marks, key = f"{prompts.LEAST_MARK} to {prompts.MOST_MARK}", "a" if found.a is None else "b"
        raise Unusable(f'it holds no mark from {marks} under "{key}"')
    if not found.reason or not found.reason.strip():
        raise Unusable('it holds no "reason"')
    if (found.better == "A" and found.a < found.b) or (found.better == "B" and found.b < found.a):
        raise Unusable(f"it prefers {found.better}, but marks {found.better} lower")
    return Battle(found.better, found.a, found.b, " ".join(found.reason.split()))


ArenaVerdict = Literal["A", "B", "Tie", "Tie (Both Bad)"]
_REPLY = re.compile(rf"\[\[({'|'.join(map(re.escape, get_args(ArenaVerdict)))})\]\]")


@dataclass(frozen=True, slots=True)
class ShownPair:
    """A request and the answers that are shown as A and as B. `seed` tells repeats of one battle apart."""

    question: str
    a: str
    b: str
    seed: int | None = None


def request_arena_verdict(pair: ShownPair) -> Request:
    """Make the request for the judgment of a pair. A repeat is a sampled reply."""
    temperature = 0.0 if pair.seed is None else 1.0
    messages = (("user", format_instruction(pair)),)
    return Request("arena", messages, prompts.ARENA_TOKENS, temperature=temperature, seed=pair.seed)


def format_instruction(pair: ShownPair) -> str:
    """Format the text that shows a pair. It has no name of a system and no citation."""
    return prompts.ARENA.format(**_show_pair(pair.question, pair.a, pair.b))


def read_arena_verdict(reply: Reply) -> ArenaVerdict:
    """Read a verdict. `Unusable` unless the trimmed reply, after its thoughts, is one of the four in full."""
    found = _REPLY.fullmatch(strip_thought(reply.text).strip())
    if found is None:
        raise Unusable(f"it is not exactly one of {', '.join(f'[[{one}]]' for one in get_args(ArenaVerdict))}")
    return found[1]  # type: ignore[return-value]
