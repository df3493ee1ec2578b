"""One loop for all agents, within a hard limit on the calls and tokens that a reader spends on one question.

An agent is two functions. `decide` chooses the next action: it asks a model, or it follows rules. `act` carries the
action out and makes the next state, until a limit ends the walk.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from keystone.generation.context.texts import count_tokens
from keystone.generation.llm.ask import request_repair
from keystone.generation.llm.model import Model, tell_outcome
from keystone.generation.types import Failure, Reply, Request, Step, Stop
from keystone.indexing.errors import Unusable, printable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spent(Failure):
    """The request was not sent, because the allowance does not hold it."""

    reason: str = "the reader's budget is spent"


@dataclass(slots=True)
class Allowance:
    """The calls and tokens left. A request reserves its prompt and `max_tokens`; a reply frees what it did not use."""

    calls: int
    tokens: int

    def split(self, parts: int) -> list["Allowance"]:
        """Split what is left into equal allowances, so that walks side by side do not take from each other.

        If the calls cannot be split evenly, the first allowances have one more.
        """
        return [Allowance((self.calls + parts - 1 - n) // parts, self.tokens // parts) for n in range(parts)]

    def take(self, share: "Allowance") -> None:
        """Take a share of what is left."""
        self.calls, self.tokens = self.calls - share.calls, self.tokens - share.tokens

    def give_back(self, shares: Iterable["Allowance"]) -> None:
        """Give back what is left of shares."""
        for share in shares:
            self.calls, self.tokens = self.calls + share.calls, self.tokens + share.tokens

    def reserve(self, request: Request) -> bool:
        """Take the cost of a request, and return True; return False if the allowance does not hold it."""
        cost = count_prompt_tokens(request) + request.max_tokens
        if self.calls < 1 or self.tokens < cost:
            return False
        self.calls, self.tokens = self.calls - 1, self.tokens - cost
        return True

    def settle(self, request: Request, reply: Reply) -> None:
        """Give back the tokens that a reply did not use."""
        self.tokens += max(0, request.max_tokens - count_tokens(reply.text))


def count_prompt_tokens(request: Request) -> int:
    """Estimate the tokens of a request's messages."""
    return sum(count_tokens(text) for _, text in request.messages)


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """The outcome of a request with the last reply, and the tokens of its calls."""

    found: T | Failure
    reply: str = ""
    prompt_tokens: int = 0
    reply_tokens: int = 0

    @property
    def reason(self) -> str:
        """The reason of a failure; empty if there is none."""
        return self.found.reason if isinstance(self.found, Failure) else ""

    @property
    def stop(self) -> Literal["", "budget", "llm_error"]:
        """The stop of a walk that ends with a failure; empty if there is none."""
        return "budget" if isinstance(self.found, Spent) else "llm_error" if isinstance(self.found, Failure) else ""


async def ask_within(model: Model, request: Request, read: Callable[[Reply], T], allowance: Allowance) -> Asked[T]:
    """Ask a model within an allowance. If `read` refuses the reply with `Unusable`, ask once more for a repair.

    The outcome is the value of `read`; `Spent` if the allowance does not hold the request; or a `Failure`. `Waits` is
    raised if another program has to make the reply.
    """
    asked: Asked[T] = Asked(Spent())
    first, replied = request, list[Request]()
    cut = False
    for _ in range(2):
        if not allowance.reserve(request):
            break
        (outcome,) = [outcome async for _, outcome in model.complete([request])]
        prompt_tokens = asked.prompt_tokens + count_prompt_tokens(request)
        if isinstance(outcome, Failure):
            asked = replace(asked, found=outcome, prompt_tokens=prompt_tokens)
            break
        replied.append(request)
        allowance.settle(request, outcome)
        reply_tokens = asked.reply_tokens + count_tokens(outcome.text)
        try:
            found = Asked(read(outcome), outcome.text, prompt_tokens, reply_tokens)
        except Unusable as refusal:
            asked = Asked(Failure(printable(str(refusal))), outcome.text, prompt_tokens, reply_tokens)
            request, cut = request_repair(request, outcome, str(refusal)), outcome.finish == "length"
        else:
            tell_outcome(model, first, replied)
            return found
    if isinstance(asked.found, Failure) and not isinstance(asked.found, Spent):
        tell_outcome(model, first, replied, asked.found.reason, cut)
    return asked


MOST_INVALID = 3
"""Steps in a row without a valid action, after which a walk ends as `invalid`."""
MOST_REPEATS = 2
"""Steps in a row that repeat earlier actions, after which a walk ends as `stalled`."""
MOST_IDLE = 4
"""Steps in a row without anything new, after which a walk ends as `stalled`."""
DONE_BEFORE = "You have done this already"
"""The beginning of the observation of a repeated action."""
REPEATED = f"{DONE_BEFORE}: its observation stands above. Do something else."
"""The observation of a repeated action, while the requests show that of the first one."""
SHOWN_AGAIN = f"{DONE_BEFORE}, and its observation was this:"
"""The words before the first observation of a repeated action, if the requests do not show it any more."""

S = TypeVar("S")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Taken(Generic[S]):
    """The outcome of one action: the state after it, and its step.

    The loop fills in the step's number, reply, tokens and stop. Two actions with the same `key` are the same action; an
    empty key equals no other. `news` says that the agent saw or kept something new.

    If the action repeats an earlier one, its observation is not shown, but `remark` is. Then the state is `kept` and
    only what the step `added` is news, unless `kept` is None.
    """

    state: S
    step: Step
    key: str = ""
    valid: bool = True
    news: bool = True
    done: bool = False
    kept: S | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Walk(Generic[S]):
    """The end of a walk: its last state, the reason for the end, and all steps."""

    state: S
    stop: Stop
    steps: tuple[Step, ...]


def tell_nobody(_step: Step) -> None:
    """Be told a step, and do nothing."""


async def walk(
    state: S,
    most_steps: int,
    decide: Callable[[S, Sequence[Step]], Awaitable[Asked[A]]],
    act: Callable[[S, A | Failure], Awaitable[Taken[S]]],
    tell: Callable[[Step], None] = tell_nobody,
    request: Callable[[S, Sequence[Step]], Request] | None = None,
) -> Walk[S]:
    """Walk from a state, at most `most_steps` steps; the state is usable whatever ends the walk.

    `decide` gets the steps so far. If no reply can be used, `act` gets the `Failure` and takes the agent's fallback. If
    the model gives no reply at all, the walk ends. `tell` is told each step as the walk keeps it. `request` makes the
    request for the step after these; None if each request shows all observations.
    """
    steps: list[Step] = []
    first: dict[str, int] = {}
    invalid = repeats = idle = 0
    while True:
        asked = await decide(state, steps)
        taken = await act(state, asked.found)
        step = replace(
            taken.step,
            number=len(steps),
            reply=asked.reply,
            prompt_tokens=asked.prompt_tokens,
            reply_tokens=asked.reply_tokens,
        )
        if isinstance(asked.found, Failure) and not asked.reply:
            last = replace(step, action="", observation=asked.reason, added=(), stop=asked.stop)
            tell(last)
            return Walk(state, asked.stop or "llm_error", (*steps, last))
        again = taken.key in first
        if again and taken.kept is not None:
            taken = replace(taken, state=taken.kept, news=bool(step.added))
        state = taken.state
        if again:
            step, observed = replace(step, observation=REPEATED), steps[first[taken.key]].observation
            if request and not any(observed in text for _, text in request(state, [*steps, step]).messages):
                step = replace(step, observation=f"{SHOWN_AGAIN} {observed}")
            step = replace(step, observation="\n".join(filter(None, [step.observation, taken.remark])))
        elif taken.key:
            first[taken.key] = len(steps)
        invalid = 0 if taken.valid else invalid + 1
        repeats = repeats + 1 if again else 0
        idle = 0 if taken.news else idle + 1
        stop = _find_stop(taken.done, invalid, repeats, idle, len(steps) + 1 >= most_steps)
        steps.append(replace(step, stop=stop or ""))
        tell(steps[-1])
        if stop:
            return Walk(state, stop, tuple(steps))


def _find_stop(done: bool, invalid: int, repeats: int, idle: int, last: bool) -> Stop | None:
    if done:
        return "done"
    if invalid >= MOST_INVALID:
        return "invalid"
    if repeats >= MOST_REPEATS or idle >= MOST_IDLE:
        return "stalled"
    return "max_steps" if last else None
