"""Requests that arrive while others are under way wait for each other: all that wait become one batch."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batches(Generic[T, R]):
    """Work on requests in batches, one batch at a time and in a thread of its own.

    `work` returns one result for each request of a batch, in order. If it raises an error, each request is worked on
    alone, so that only those that cause an error get it. A batch has at most `most` requests, and `lock` is held
    meanwhile. Only one event loop may ask.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Sequence[R]],
        most: int,
        lock: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        self._work, self._most, self._lock = work, most, lock or nullcontext()
        self._thread = ThreadPoolExecutor(1, "batches")
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._running: asyncio.Task[None] | None = None
        self.requests = self.batches = 0
        """The numbers of all requests and of all batches so far."""

    def count_on(self, before: "Batches[T, R]") -> None:
        """Add the numbers of the batches that these take the place of."""
        self.requests, self.batches = self.requests + before.requests, self.batches + before.batches

    async def ask(self, request: T) -> R:
        """Add a request to the next batch; returns its result."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[R] = loop.create_future()
        self._waiting.append((request, found))
        if self._running is None or self._running.done():
            self._running = loop.create_task(self._work_on_all())
        return await found

    async def _work_on_all(self) -> None:
        while self._waiting:
            async with self._lock:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                self.requests, self.batches = self.requests + len(batch), self.batches + 1
                if not await self._work_on(batch) and len(batch) > 1:
                    for one in batch:
                        await self._work_on([one])

    async def _work_on(self, batch: list[tuple[T, asyncio.Future[R]]]) -> bool:
        """Work on a batch, and return whether it has results. An error of one request becomes its result."""
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._thread, self._work, [request for request, _ in batch])
        except Exception as error:
            if len(batch) == 1 and not batch[0][1].done():
                batch[0][1].set_exception(error)
            return False
        for (_, found), result in zip(batch, results, strict=True):
            if not found.done():
                found.set_result(result)
        return True
