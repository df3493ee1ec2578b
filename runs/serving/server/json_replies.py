"""Replies of JSON, the errors that all fronts share, and work that ends when its client leaves."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import orjson
from starlette.requests import Request
from starlette.types import Send

from keystone.runs.serving.call_log import Reply


def make_error(message: str, status: int, key: str = "error") -> Reply:
    """Make the reply to a request that cannot be answered. Pyserini 1 has the message under `detail`."""
    return Reply(orjson.dumps({key: message}), status)


async def send_json(send: Send, reply: Reply, *headers: tuple[bytes, bytes], more_body: bool = False) -> None:
    """Send a reply as the whole response, with further `headers`. With `more_body`, the caller ends the response."""
    own = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(reply.body)), *headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": own})
    await send({"type": "http.response.body", "body": reply.body, "more_body": more_body})


T = TypeVar("T")


async def run_until_left(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Run work for a client; returns its result. If the client leaves first, cancel the work and return None."""

    async def wait_until_left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    with start(work) as wanted, start(wait_until_left()) as left:
        await asyncio.wait([wanted, left], return_when=asyncio.FIRST_COMPLETED)
        return wanted.result() if wanted.done() else None


@contextmanager
def start(work: Coroutine[Any, Any, T]) -> Iterator["asyncio.Task[T]"]:
    """Start work, and cancel it if it has not ended when the block ends."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
