"""The model as the steps of a run see it. It allows each reply tokens for thoughts, and counts unusable replies."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from keystone.generation.llm.model import Model, tell_outcome
from keystone.generation.types import Failure, Reply, Request

MOST_REASONS = 5
"""How many reasons the manifest has for steps of one stage without a usable reply. Its `fallbacks` have all of them."""


@dataclass(slots=True)
class StepCount:
    """The number of steps that asked the model, and the reasons why some of them have no usable reply."""

    asked: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    """How many of those have a reply that was cut at `max_tokens`."""

    def take(self) -> dict[str, Any]:
        """Return the numbers as values of JSON, with the most frequent reasons, and begin anew."""
        if not self.asked:
            return {}
        numbers = {"asked": self.asked, "unusable": self.refusals.total(), "cut": self.cut}
        reasons = dict(sorted(self.refusals.most_common(), key=lambda one: (-one[1], one[0]))[:MOST_REASONS])
        self.asked, self.refusals, self.cut = 0, Counter(), 0
        return {"steps": numbers | {"reasons": reasons}}


@dataclass(slots=True)
class RunModel:
    """The model of a run. Each request allows it `thinking` tokens more, and `steps` counts the outcomes."""

    name: str
    model: Model
    thinking: int
    steps: StepCount

    def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """See `keystone.generation.llm.model.Model`."""
        return self.model.complete(self._widen(requests))

    def take_outcome(self, asked: Sequence[Request], refusal: str, cut: bool, /) -> None:
        """See `keystone.generation.llm.model.TakesOutcomes`."""
        self.steps.asked += 1
        if refusal:
            self.steps.refusals[refusal] += 1
            self.steps.cut += cut
        tell_outcome(self.model, list(self._widen(asked)), refusal, cut)

    def _widen(self, requests: Iterable[Request]) -> Iterable[Request]:
        if not self.thinking:
            return requests
        return (replace(one, max_tokens=one.max_tokens + self.thinking) for one in requests)
