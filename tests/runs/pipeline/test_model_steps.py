"""The steps of a stage that ask the model are counted once, and its budget is shared by the steps that follow."""

from collections.abc import AsyncIterator, Iterable

import pytest

from keystone.generation.types import Failure, Reply, Request
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.model_runner import RunModel, StepCount, leave_uncounted, list_shares


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
        model.take_outcome([ask("one"), ask("a repair")], refusal, True)
    model.take_outcome([ask("two")], "no grade", True)
    for _ in range(2):
        model.take_outcome([], "a call that failed", False)
    leave_uncounted(model).take_outcome([ask("three")], "no grade", False)  # type: ignore[attr-defined]
    reasons = {"a call that failed": 2, "no grade": 1}
    assert steps.take() == {"steps": {"asked": 4, "unusable": 3, "cut": 1, "reasons": reasons}}
    assert steps.take() == {}


@pytest.mark.parametrize(("track", "shares"), [("rag25", (0.75, 0.5)), ("none", (1.0, 2 / 3))])
def test_a_quarter_of_a_budget_is_for_answers_if_there_are_any(track: str, shares: tuple[float, float]) -> None:
    settings = ["index=i", "topics=t", "model={name: m, budget: {calls: 400}}", f"track={track}"]
    found = list_shares(read_config(None, settings, "keystone"))
    assert (found["rerank"], found["umbrela"]) == shares
