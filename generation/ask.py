"""Questions to a model, asked together, each with the reader of its reply and one repair."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from generation.llm.model import Model
from generation.types import Failure, Reply, Request
from indexing.errors import Unusable, Waits, printable

T = TypeVar("T")
S = TypeVar("S")


async def ask(
    model: Model, asked: Iterable[tuple[Request, Callable[[Reply], T]]]
) -> AsyncIterator[tuple[int, T | Failure]]:
    """Each request's number with the value that its reader makes of the reply, or with a failure, in any order.

    If a reader refuses a reply with `Unusable`, the model is asked once more: see `request_repair`. A second refusal
    is a `Failure`.
    """
    waiting: dict[int, tuple[Request, Callable[[Reply], T]]] = {}
    repairs: list[tuple[int, Request, Callable[[Reply], T]]] = []

    def requests() -> Iterable[Request]:
        for number, (request, read) in enumerate(asked):
            waiting[number] = request, read
            yield request

    waits = None
    try:
        async for number, reply in model.complete(requests()):
            request, read = waiting.pop(number)
            try:
                found = reply if isinstance(reply, Failure) else read(reply)
            except Unusable as refusal:
                assert isinstance(reply, Reply)
                repairs.append((number, request_repair(request, reply, str(refusal)), read))
            else:
                yield number, found
    except Waits as error:  # repairs can wait in the same file
        waits = error
    async for place, reply in model.complete([request for _, request, _ in repairs]):
        number, _, read = repairs[place]
        try:
            found = reply if isinstance(reply, Failure) else read(reply)
        except Unusable as refusal:
            found = Failure(printable(str(refusal)))
        yield number, found
    if waits:
        raise waits


def request_repair(request: Request, reply: Reply, why: str) -> Request:
    """The one further request after a refused reply.

    If the reply was cut at `max_tokens`, the request allows twice as many. Otherwise the model sees its reply and the
    reason why the reply cannot be read.
    """
    if reply.finish == "length":
        return replace(request, max_tokens=2 * request.max_tokens)
    wanted = f"That reply cannot be used: {why}. Reply once more to the request above, in exactly the form it asks for."
    return replace(request, messages=(*request.messages, ("assistant", reply.text), ("user", wanted)))


async def ask_all(model: Model, asked: Sequence[tuple[Request, Callable[[Reply], T]]]) -> list[T | Failure]:
    """The values or failures of `ask`, in the order of the requests."""
    found: dict[int, T | Failure] = {number: value async for number, value in ask(model, asked)}
    return [found[number] for number in range(len(asked))]


async def run_together(work: Iterable[Callable[[], Awaitable[S]]], at_once: int = 64) -> list[S]:
    """The results of coroutines, at most `at_once` of them running together, in the order given.

    The first error ends all of them, except `Waits`: the requests of the others belong into the same file, so `Waits`
    is raised when all are done.
    """
    room = asyncio.Semaphore(at_once)
    waits: list[Waits] = []

    async def one(start: Callable[[], Awaitable[S]]) -> S | None:
        async with room:
            try:
                return await start()
            except Waits as error:
                waits.append(error)
                return None

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(start)) for start in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    if waits:
        raise waits[-1]
    return [task.result() for task in tasks]  # type: ignore[misc]
