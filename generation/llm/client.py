"""One model for all steps: requests made at one time share the backend, identical requests, and a cache on disk."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

from generation.llm.cache import Cache
from generation.llm.chat import Backend, PaidReply, keyed_name
from generation.llm.model import key_of
from generation.llm.settings import ModelSettings
from generation.llm.usage import add
from generation.types import Failure, Reply, Request, Usage
from indexing.errors import UserError

MOST_READY = 256
"""Outcomes of one `complete` that may lie ready before more of its requests are drawn."""


@asynccontextmanager
async def serve(settings: ModelSettings, folder: Path, backend: Callable[[], Backend]) -> AsyncIterator["Client"]:
    """The model of a backend that answers single requests, with the cache of the settings."""
    with closing(Cache(settings.replies_in(folder))) as cache:
        client = Client(keyed_name(settings.name, settings.extra), backend(), cache, settings.run_seconds)
        try:
            yield client
        finally:
            await client.close()


@dataclass(eq=False, slots=True)
class _Stream:
    """One call of `complete`."""

    numbered: Iterator[tuple[int, Request]]
    done: deque[tuple[int, Reply | Failure]] = field(default_factory=deque)
    pending: int = 0
    drawn: bool = False
    error: BaseException | None = None
    awaited: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.awaited is not None and not self.awaited.done():
            self.awaited.set_result(None)


@dataclass(slots=True)
class _Job:
    key: str
    request: Request
    asked_by: list[tuple[_Stream, int, str]]


class Client:
    """The `Model` of a backend that answers single requests.

    Free workers draw requests from the oldest `complete` first, so that requests that begin alike stay together. Each
    reply is in the cache before the caller sees it.
    """

    def __init__(self, name: str, backend: Backend, cache: Cache, run_seconds: float | None = None) -> None:
        self.name = name
        self.usage: defaultdict[str, Usage] = defaultdict(Usage)
        self._backend, self._cache = backend, cache
        self._loop = asyncio.get_running_loop()
        self._streams: list[_Stream] = []
        self._jobs: dict[str, _Job] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._arrived: list[tuple[_Job, PaidReply]] = []
        self._error: BaseException | None = None
        self._end = None if run_seconds is None else self._loop.call_later(run_seconds, self._out_of_time, run_seconds)

    @property
    def notes(self) -> list[str]:
        """The notes of the backend."""
        return self._backend.notes

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """See `generation.llm.model.Model`."""
        stream = _Stream(enumerate(requests))
        self._streams.append(stream)
        try:
            while True:
                self._start_workers()
                while stream.done:
                    yield stream.done.popleft()
                    if len(stream.done) == MOST_READY // 2:
                        self._start_workers()
                if error := self._error or stream.error:
                    raise error
                if stream.drawn and not stream.pending:
                    return
                if not stream.pending and len(self._workers) < self._backend.at_once:
                    await asyncio.sleep(0)
                    continue
                stream.awaited = self._loop.create_future()
                await stream.awaited
        finally:
            self._leave(stream)
            self._deliver()

    async def close(self) -> None:
        """Cancel open requests; replies that have arrived are kept."""
        if self._end:
            self._end.cancel()
        await asyncio.sleep(0)  # workers take the replies that are there
        self._deliver()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._deliver()
        await self._backend.close()

    def _start_workers(self) -> None:
        while len(self._workers) < self._backend.at_once and not self._error and (job := self._next()):
            worker = self._loop.create_task(self._work(job))
            self._workers.add(worker)
            worker.add_done_callback(self._free)

    def _free(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled():
            for stream in self._streams:
                stream.wake()

    async def _work(self, job: _Job | None) -> None:
        try:
            while job:
                answered = await self._backend.answer(job.request)
                self._arrived.append((job, answered))
                if len(self._arrived) == 1:
                    self._loop.call_soon(self._deliver)
                job = self._next()
        except Exception as error:
            self._fail(error)

    def _deliver(self) -> None:
        """Keep the replies that have arrived, all by one commit, and hand them out."""
        arrived, self._arrived = self._arrived, []
        if not arrived:
            return
        replies = [(job.key, answered) for job, answered in arrived if isinstance(answered.outcome, Reply)]
        try:
            new = self._cache.put(replies) if replies else set()
            known = {key: self._cache.get(key) for key, _ in replies if key not in new}
        except Exception as error:
            self._fail(error)
            return
        for job, answered in arrived:
            outcome = (known.get(job.key) or answered).outcome
            self._account(job.request.purpose, answered.usage)
            for _, _, purpose in job.asked_by[1:]:
                self._account(purpose, Usage(cache_hits=1))
            for stream, number, _ in job.asked_by:
                stream.done.append((number, outcome))
                stream.pending -= 1
                stream.wake()
            del self._jobs[job.key]

    def _next(self) -> _Job | None:
        """The next request that the cache cannot answer; those that it can are answered on the way."""
        for stream in tuple(self._streams):
            while len(stream.done) < MOST_READY:
                try:
                    number, request = next(stream.numbered)
                    key = key_of(self.name, request)
                    known = self._cache.get(key)
                except StopIteration:
                    self._leave(stream)
                    stream.wake()
                    break
                except Exception as error:
                    stream.error = error
                    self._leave(stream)
                    stream.wake()
                    break
                if known:
                    self._account(request.purpose, Usage(cache_hits=1))
                    stream.done.append((number, known.outcome))
                    stream.wake()
                    continue
                stream.pending += 1
                if same := self._jobs.get(key):
                    same.asked_by.append((stream, number, request.purpose))
                    continue
                job = self._jobs[key] = _Job(key, request, [(stream, number, request.purpose)])
                return job
        return None

    def _leave(self, stream: _Stream) -> None:
        stream.drawn = True
        if stream in self._streams:
            self._streams.remove(stream)

    def _account(self, purpose: str, usage: Usage) -> None:
        self.usage[purpose] = add(self.usage[purpose], usage)

    def _out_of_time(self, seconds: float) -> None:
        self._fail(
            UserError(
                f"{self.name}: the run has reached its limit of {seconds:g} s. "
                "Everything answered is kept: the same command goes on from there"
            )
        )

    def _fail(self, error: BaseException) -> None:
        """End every `complete` with this error."""
        self._error = self._error or error
        for worker in self._workers:
            worker.cancel()
        for stream in {id(s): s for job in self._jobs.values() for s, _, _ in job.asked_by}.values():
            stream.wake()
        for stream in self._streams:
            stream.wake()
