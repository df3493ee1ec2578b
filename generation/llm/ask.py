"""Requests to a model that are sent together. If its reader refuses the reply, a request is sent once more."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from keystone.generation.llm.model import Model, tell_outcome
from keystone.generation.replies import strip_thought
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unusable, Waits, printable

T = TypeVar("T")
S = TypeVar("S")
NO_TEXT = "(no text)"
"""What a repair shows in place of a reply without text: some hosts refuse an empty message."""


async def ask(
    model: Model, requests: Iterable[tuple[Request, Callable[[Reply], T]]]
) -> AsyncIterator[tuple[int, T | Failure]]:
    """Send requests to a model, and yield the number of each with its reader's value or a `Failure`, in any order.

    If a reader refuses a reply with `Unusable`, the model is asked once more: see `request_repair`. A second refusal
    is a `Failure`, unless the reader can mend the second reply, or else the first. `Waits` is raised last, so that the
    repairs are written to the same file.
    """
    waiting: dict[int, tuple[Request, Callable[[Reply], T]]] = {}
    repairs: list[tuple[int, Request, Reply, Request, Callable[[Reply], T]]] = []

    def draw_requests() -> Iterable[Request]:
        for number, (request, read) in enumerate(requests):
            waiting[number] = request, read
            yield request

    waits = None
    try:
        async for number, reply in model.complete(draw_requests()):
            request, read = waiting.pop(number)
            try:
                found = reply if isinstance(reply, Failure) else read(reply)
            except Unusable as refusal:
                assert isinstance(reply, Reply)
                repairs.append((number, request, reply, request_repair(request, reply, str(refusal)), read))
            else:
                if isinstance(found, Failure):
                    tell_outcome(model, request, [], found.reason)
                else:
                    tell_outcome(model, request, [request])
                yield number, found
    except Waits as error:  # raised below, when the repairs are in the file too
        waits = error
    async for place, reply in model.complete([repair for *_, repair, _ in repairs]):
        number, request, first, repair, read = repairs[place]
        asked = [request] if isinstance(reply, Failure) else [request, repair]
        try:
            found = reply if isinstance(reply, Failure) else read(replace(reply, last=True))
        except Unusable as refusal:
            found = Failure(printable(str(refusal)))
        if isinstance(found, Failure):
            with suppress(Unusable):
                found = read(replace(first, last=True))
        tell_outcome(
            model,
            request,
            asked,
            found.reason if isinstance(found, Failure) else "",
            isinstance(reply, Reply) and reply.finish == "length",
        )
        yield number, found
    if waits:
        raise waits


def request_repair(request: Request, reply: Reply, why: str) -> Request:
    """Make the one further request after a reader refused a reply.

    If the reply was cut at `max_tokens`, the new request allows twice as many tokens, for thoughts as well. Otherwise
    the new request shows the model its reply without thoughts, and says why the reader refused it.
    """
    if reply.finish == "length":
        return replace(request, max_tokens=2 * request.max_tokens, doubled=True)
    said = strip_thought(reply.text)
    shown = said if said.strip() else NO_TEXT
    wanted = f"That reply cannot be used: {why}. Reply once more to the request above, in exactly the form it asks for."
    return replace(request, messages=(*request.messages, ("assistant", shown), ("user", wanted)))


async def ask_all(model: Model, requests: Sequence[tuple[Request, Callable[[Reply], T]]]) -> list[T | Failure]:
    """Send requests as `ask` does; returns the values or failures in the order of the requests."""
    found: dict[int, T | Failure] = {number: value async for number, value in ask(model, requests)}
    return [found[number] for number in range(len(requests))]


async def run_together(work: Iterable[Callable[[], Awaitable[S]]], at_once: int = 64) -> list[S]:
    """Run coroutines, at most `at_once` at the same time; returns their results in the order of `work`.

    The first error ends all of them. `Waits` does not: it is raised when all are done, so that the requests of all are
    in one file.
    """
    room = asyncio.Semaphore(at_once)
    waits: list[Waits] = []

    async def run_one(start: Callable[[], Awaitable[S]]) -> S | None:
        async with room:
            try:
                return await start()
            except Waits as error:
                waits.append(error)
                return None

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run_one(start)) for start in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    if waits:
        raise waits[-1]
    return [task.result() for task in tasks]  # type: ignore[misc]
