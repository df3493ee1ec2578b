"""A model whose replies a function of the request gives, for tests of requests and of reading replies."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

from keystone.generation.llm.model import Model
from keystone.generation.types import Failure, Reply, Request
from keystone.runs.pipeline.model_runner import RunWithModel

Said = str | Reply | Failure
T = TypeVar("T")


class Scripted:
    """Gives the replies of its function, to the last request first, and keeps the requests in their order."""

    name = "scripted"

    def __init__(self, say: Callable[[Request], Said]) -> None:
        self.say = say
        self.requests: list[Request] = []

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        asked = list(requests)
        self.requests += asked
        for number in reversed(range(len(asked))):
            said = self.say(asked[number])
            yield number, Reply(said) if isinstance(said, str) else said


def by_purpose(**replies: Any) -> Callable[[Request], Said]:
    """Gives the replies of each purpose in turn, as JSON, and repeats the last one; strings stay as they are."""
    left = {purpose: list(said) for purpose, said in replies.items()}

    def say(request: Request) -> Said:
        said = left[request.purpose]
        value = said.pop(0) if len(said) > 1 else said[0]
        return value if isinstance(value, str | Reply | Failure) else json.dumps(value)

    return say


def run_with(model: Model | None) -> RunWithModel:
    """Runs work in an event loop of its own, with this model."""

    def run(work: Callable[[Model | None], Awaitable[T]]) -> T:
        async def wait() -> T:
            return await work(model)

        return asyncio.run(wait())

    return run
