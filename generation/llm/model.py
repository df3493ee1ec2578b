"""What every language model looks like to the steps that ask it, and how their questions are asked together."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn, Protocol, TypeVar

import orjson

from generation.types import Failure, Reply, Request
from indexing.errors import UserError, printable
from indexing.io.files import digest

T = TypeVar("T")
S = TypeVar("S")

MOST_OPENINGS = 1_000
"""Brackets of a reply's prose that may begin no JSON after all."""
MOST_PASSES = 20
"""How often the length of a reply may be read in looking for the JSON in it."""

_FENCED = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"\[(?=\s*+[\[{\"\]\-\dtfn])|\{(?=\s*+[\"}])")
_THOUGHT = re.compile(r"\A\s*<think>.*?(</think>|\Z)", re.DOTALL)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(members)) < len(members):
        raise ValueError("a key is repeated")
    return dict(members)


_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_number, object_pairs_hook=_once)


class Model(Protocol):
    """Requests in, replies out. All calls of `complete` at one time share what the model can bear."""

    name: str

    def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """Each request's number with its reply or failure, in the order in which they come.

        `requests` is read as there is room for more, never as a whole. `UserError` where no request can be answered:
        a wrong key, an unknown model, no endpoint that can be reached. `Waits` where replies are yet to be made.
        """
        ...


class Waits(UserError):
    """Replies are to be made elsewhere; the message names the file of requests that waits for them."""

    waits = True


class Unusable(ValueError):
    """A reply that cannot be read as what was asked for; the message says why, so that the model can mend it."""


def key_of(model: str, request: Request) -> str:
    """The key of a request's content, with the model's name and without the purpose: 64 hexadecimal digits."""
    return digest(
        [model, request.messages, request.max_tokens, request.schema, request.temperature, request.top_logprobs]
    )


async def ask(
    model: Model, asked: Iterable[tuple[Request, Callable[[Reply], T]]]
) -> AsyncIterator[tuple[int, T | Failure]]:
    """Each request's number with what its reader makes of the reply, or why there is nothing, in any order.

    A reply that its reader refuses with `Unusable` is asked for once more: see `repair`. A second refusal is a
    `Failure`.
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
                repairs.append((number, repair(request, reply, str(refusal)), read))
            else:
                yield number, found
    except Waits as error:  # what is to be repaired can wait in the same file
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


def repair(request: Request, reply: Reply, why: str) -> Request:
    """The one further request after a refused reply.

    One that was cut at `max_tokens` is asked for with twice as many; of any other the model is shown what it said
    and why that could not be read.
    """
    if reply.finish == "length":
        return replace(request, max_tokens=2 * request.max_tokens)
    wanted = f"That reply cannot be used: {why}. Reply once more to the request above, in exactly the form it asks for."
    return replace(request, messages=(*request.messages, ("assistant", reply.text), ("user", wanted)))


def read_json(reply: Reply) -> Any:
    """The JSON value of a reply; `Unusable` if there is none, or if it was cut.

    Taken are the reply as a whole, else the value in its code fence, else the first value that stands in its prose;
    what a model thought aloud before is passed over, and control characters within strings are let through. The value
    can be written as JSON again: it is not nested too deeply, no key is repeated, and it holds no NaN, no half of a
    surrogate pair and no number beyond 64 bits.
    """
    if reply.finish == "length":
        raise Unusable("it was cut before its end")
    try:
        value = _first_json(without_thought(reply.text))
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Unusable(f"its JSON holds what cannot be kept: {error}") from None
    return value


def without_thought(text: str) -> str:
    """What a model says after what it thinks, where the server leaves its thoughts in the reply."""
    return _THOUGHT.sub("", text)


def _first_json(text: str) -> Any:
    for whole in (text, *_FENCED.findall(text)):
        with suppress(ValueError, RecursionError):
            return _DECODER.decode(whole.lstrip("\ufeff"))
    for value in values_in(text):
        return value
    raise Unusable("it holds no JSON")


def values_in(text: str) -> Iterator[Any]:
    """The JSON objects and lists that stand in a text, one after another, perhaps none.

    `Unusable` where an object begins that is broken, repeats a key or is nested too deeply, and where broken lists go
    on and on: the work grows as the length of the text.
    """
    at = tries = read = 0
    while opening := _OPENING.search(text, at):
        start = opening.start()
        try:
            value, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            tries, read = tries + 1, read + getattr(error, "pos", len(text)) - start
            if text[start] == "{" or tries > MOST_OPENINGS or read > MOST_PASSES * len(text):
                raise Unusable("its JSON is broken, repeats a key or is nested too deeply") from None
            at = start + 1
        else:
            yield value


def is_json(text: str) -> bool:
    """Whether a text as a whole is JSON."""
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


async def every(model: Model, asked: Sequence[tuple[Request, Callable[[Reply], T]]]) -> list[T | Failure]:
    """What `ask` finds, in the order of the requests."""
    found: dict[int, T | Failure] = {number: value async for number, value in ask(model, asked)}
    return [found[number] for number in range(len(asked))]


async def together(work: Iterable[Callable[[], Awaitable[S]]], at_once: int = 64) -> list[S]:
    """The results of coroutines run at most `at_once` together, in the order given.

    The first error ends all of them, but for `Waits`: what the others ask is to be in the same file, so it is raised
    when they are done.
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
