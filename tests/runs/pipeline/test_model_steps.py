"""The steps of a stage that ask the model are counted once, and its budget is shared by the steps that follow."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import orjson
import pytest

from keystone.generation.llm.ask import ask_all
from keystone.generation.readers.loop import Allowance, ask_within
from keystone.generation.types import Failure, Reply, Request
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.directory import MANIFEST
from keystone.runs.pipeline.manifest import warn_of_unusable_replies
from keystone.runs.pipeline.model_runner import RunModel, StepCount, leave_uncounted, list_shares
from tests.support.models.scripted import Scripted


class Silent:
    """A model that nobody asks."""

    name = "silent"

    async def complete(self, _requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        nothing: list[tuple[int, Reply | Failure]] = []
        for outcome in nothing:
            yield outcome


def ask(text: str) -> Request:
    return Request("umbrela", (("user", text),), 9)


def test_a_step_that_is_asked_again_in_a_stage_counts_once() -> None:
    steps = StepCount()
    model = RunModel("silent", Silent(), 0, steps)
    for refusal in ("no grade", ""):
        model.take_outcome(ask("one"), [ask("one"), ask("a repair")], refusal, True)
    model.take_outcome(ask("two"), [ask("two")], "no grade", True)
    for text in ("three", "four", "four"):
        model.take_outcome(ask(text), [], "a call that failed", False)
    leave_uncounted(model).take_outcome(ask("five"), [ask("five")], "no grade", False)  # type: ignore[attr-defined]
    reasons = {"a call that failed": 2, "no grade": 1}
    assert steps.take() == {"steps": {"asked": 4, "unusable": 3, "cut": 1, "reasons": reasons}}
    assert steps.take() == {}


@pytest.mark.parametrize(("said", "unusable"), [([Failure("late")] * 2, 1), ([Failure("late"), "fine"], 0)])
@pytest.mark.parametrize("in_loop", [False, True])
def test_a_call_that_failed_before_counts_by_its_last_outcome(
    said: list[Failure | str], unusable: int, in_loop: bool
) -> None:
    left, steps = iter(said), StepCount()
    model = RunModel("scripted", Scripted(lambda _: next(left)), 0, steps)
    for _ in said:
        if in_loop:
            asyncio.run(ask_within(model, ask("one"), lambda reply: reply.text, Allowance(9, 999)))
        else:
            asyncio.run(ask_all(model, [(ask("one"), lambda reply: reply.text)]))
    reasons = {"late": 1} if unusable else {}
    assert steps.take() == {"steps": {"asked": 1, "unusable": unusable, "cut": 0, "reasons": reasons}}


@pytest.mark.parametrize(("cut", "advised"), [(52, True), (27, False), (0, False)])
def test_if_most_replies_were_cut_the_warning_says_what_to_raise(tmp_path: Path, cut: int, advised: bool) -> None:
    steps = {"asked": 67, "unusable": 55, "cut": cut, "reasons": {"it holds no passage": 34}}
    (tmp_path / MANIFEST).write_bytes(orjson.dumps({"artifacts": {"queries.jsonl": {"steps": steps}}}))
    said = warn_of_unusable_replies(tmp_path)
    assert said.startswith("the model gave no usable reply in 55 of 67 steps (most often: it holds no passage)")
    assert (f"{cut} of these replies were cut at their limit, max_tokens: raise model.thinking" in said) is advised


@pytest.mark.parametrize(("track", "shares"), [("rag25", (0.75, 0.5)), ("none", (1.0, 2 / 3))])
def test_a_quarter_of_a_budget_is_for_answers_if_there_are_any(track: str, shares: tuple[float, float]) -> None:
    settings = ["index=i", "topics=t", "model={name: m, budget: {calls: 400}}", f"track={track}"]
    found = list_shares(read_config(None, settings, "keystone"))
    assert (found["rerank"], found["umbrela"]) == shares
