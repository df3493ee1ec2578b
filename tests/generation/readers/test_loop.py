"""The loop of agents: each reason for its end, the steps that it keeps, and the agent's fallback."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from keystone.generation.readers.loop import (
    REPEATED,
    SHOWN_AGAIN,
    Allowance,
    Asked,
    Spent,
    Taken,
    Walk,
    ask_within,
    walk,
)
from keystone.generation.types import Failure, Reply, Request, Step
from keystone.indexing.errors import Unusable
from tests.support.models.scripted import Said, Scripted

Kept = tuple[str, ...]


def read_word(reply: Reply) -> str:
    if not reply.text.isalpha():
        raise Unusable("it is no word")
    return reply.text


async def act(state: Kept, word: str | Failure) -> Taken[Kept]:
    """Keeps each word; `end` ends, `idle` keeps nothing, and neither does a repeated `seek`.

    Without a word the agent's fallback is `none`.
    """
    step = Step("q", "d", 0, 0, "word", "", "", str(word), "seen")
    if isinstance(word, Failure):
        return Taken((*state, "none"), step, valid=False)
    if word.startswith("idle"):
        return Taken(state, step, key=word, news=False)
    if word == "seek":
        return Taken((*state, word), step, key=word, kept=state)
    return Taken((*state, word), step, key="" if word == "same" else word, done=word == "end")


def show_last(_state: Kept, steps: Sequence[Step]) -> Request:
    return Request("word", tuple(("user", step.observation) for step in steps[-1:]), 10)


def show_all(_state: Kept, steps: Sequence[Step]) -> Request:
    return Request("word", tuple(("user", step.observation) for step in steps), 10)


def run_agent(
    replies: list[Said],
    most_steps: int = 20,
    calls: int = 99,
    show: Callable[[Kept, Sequence[Step]], Request] = show_all,
) -> tuple[Walk[Kept], Scripted]:
    left = iter(replies)
    model = Scripted(lambda _request: next(left))
    allowance = Allowance(calls, 10_000)

    async def decide(_state: Kept, steps: Sequence[Step]) -> Asked[str]:
        request = Request("word", (("user", f"{len(steps)} steps"),), 10)
        return await ask_within(model, request, read_word, allowance)

    return asyncio.run(walk((), most_steps, decide, act, request=show)), model


@pytest.mark.parametrize(
    ("replies", "stop", "kept"),
    [
        (["a", "b", "end"], "done", ("a", "b", "end")),
        (["?", "a", "end"], "done", ("a", "end")),
        (["?"] * 6, "invalid", ("none", "none", "none")),
        (["?", "?", "?", "?", "a", "?", "?", "end"], "done", ("none", "none", "a", "none", "end")),
        (["a", "a", "b", "b", "b"], "stalled", ("a", "a", "b", "b", "b")),
        (["a", "b", "a", "b"], "stalled", ("a", "b", "a", "b")),
        (["same", "same", "same", "end"], "done", ("same", "same", "same", "end")),
        (["idlea", "idleb", "idlec", "idled"], "stalled", ()),
        (["idlea", "idleb", "idlec", "a", "idled", "end"], "done", ("a", "end")),
        (["seek", "idlea", "seek", "idleb", "seek", "end"], "stalled", ("seek",)),
        (["a", Failure("down")], "llm_error", ("a",)),
    ],
)
def test_each_reason_ends_a_walk_and_its_state_stays(replies: list[Said], stop: str, kept: Kept) -> None:
    found, _ = run_agent(replies)
    assert (found.stop, found.state) == (stop, kept)
    assert [step.stop for step in found.steps] == [""] * (len(found.steps) - 1) + [stop]
    assert [step.number for step in found.steps] == list(range(len(found.steps)))


@pytest.mark.parametrize("most", [1, 2, 7])
def test_a_walk_never_exceeds_its_steps_or_its_calls_by_one(most: int) -> None:
    words = [letter * 2 for letter in "abcdefghij"]
    found, model = run_agent(list(words), most_steps=most)
    assert (found.stop, len(found.steps), len(model.requests)) == ("max_steps", most, most)
    found, model = run_agent(list(words), calls=most)
    assert (found.stop, found.state, len(model.requests)) == ("budget", tuple(words[:most]), most)
    assert found.steps[-1].observation == Spent().reason


def test_a_repair_that_the_budget_does_not_hold_leaves_the_fallback() -> None:
    found, model = run_agent(["?"], calls=1)
    assert (found.stop, found.state, len(model.requests)) == ("budget", ("none",), 1)


def test_a_step_has_its_reply_its_cost_and_a_word_for_a_repeat() -> None:
    found, _ = run_agent(["?", "a", "a", "end"])
    first, second, _end = found.steps
    assert (first.reply, first.observation, first.reply_tokens) == ("a", "seen", 2)
    assert first.prompt_tokens > 2 * second.prompt_tokens
    assert (second.observation, second.action) == (REPEATED, "a")


def test_a_repeat_shows_the_first_observation_if_the_requests_have_left_it_out() -> None:
    found, _ = run_agent(["a", "b", "a", "end"], show=show_last)
    assert [step.observation for step in found.steps] == ["seen", "seen", f"{SHOWN_AGAIN} seen", "seen"]
