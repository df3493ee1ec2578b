"""One loop for all agents: a decision, its action, and the next state, until a limit ends the walk.

An agent is two functions. `decide` chooses the next action: it asks a model, or it follows rules. `act` carries the
action out.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from keystone.generation.readers.allowance import Asked
from keystone.generation.types import Failure, Step, Stop

MOST_INVALID = 3
"""Steps in a row without a valid action, after which a walk ends as `invalid`."""
MOST_REPEATS = 2
"""Steps in a row that repeat earlier actions, after which a walk ends as `stalled`."""
MOST_IDLE = 4
"""Steps in a row without anything new, after which a walk ends as `stalled`."""
REPEATED = "You have done this already: its observation stands above. Do something else."
"""The observation of a repeated action."""

S = TypeVar("S")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Taken(Generic[S]):
    """The outcome of one action: the state after it, and its step.

    The loop fills in the step's number, reply, tokens and stop. Two actions with the same `key` are the same action; an
    empty key equals none. `news` says that the agent saw or kept something new.
    """

    state: S
    step: Step
    key: str = ""
    valid: bool = True
    news: bool = True
    done: bool = False


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
) -> Walk[S]:
    """Walk from a state, at most `most_steps` steps; the state is usable whatever ends the walk.

    `decide` gets the steps so far. If no reply can be used, `act` gets the `Failure` and takes the agent's fallback. If
    the model gives no reply at all, the walk ends. `tell` is told each step as the walk keeps it.
    """
    steps: list[Step] = []
    keys: set[str] = set()
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
        again = taken.key in keys
        if again:
            step = replace(step, observation=REPEATED)
        elif taken.key:
            keys.add(taken.key)
        state = taken.state
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
