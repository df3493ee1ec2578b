"""One model for all steps.

All requests share one backend and one cache; identical ones are sent once.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path

from keystone.generation.llm.budget import NO_SHARES, Purse
from keystone.generation.llm.cache import Cache, keep_outcome
from keystone.generation.llm.chat import Backend, PaidReply, make_keyed_name
from keystone.generation.llm.model import OpenModel, PromptSizes, make_request_key
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.errors import UserError

MOST_READY_OUTCOMES = 256
"""If one `complete` has this number of outcomes ready, no more of its requests are drawn."""


@asynccontextmanager
async def open_client(
    settings: ModelSettings, folder: Path, backend: Callable[[], Backend], retry: bool = False
) -> AsyncIterator["Client"]:
    """Open the model of a backend of single requests, with the cache of the settings.

    With `retry`, it asks again for replies that no reader could use.
    """
    with closing(Cache(settings.replies_in(folder), retry)) as cache:
        client = Client(make_keyed_name(settings.name, settings.extra), backend(), cache, settings.run_seconds)
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
class _OpenRequest:
    key: str
    request: Request
    asked_by: list[tuple[_Stream, int, str]]


class Client:
    """The `Model` of a backend that answers single requests.

    Free workers draw requests from the oldest `complete` first, so that requests with the same beginning stay together.
    Each reply is in the cache before the caller sees it.
    """

    def __init__(self, name: str, backend: Backend, cache: Cache, run_seconds: float | None = None) -> None:
        self.name = name
        self.usage: defaultdict[str, Usage] = defaultdict(Usage)
        self.prompts = PromptSizes()
        self._backend, self._cache = backend, cache
        self._loop = asyncio.get_running_loop()
        self._streams: list[_Stream] = []
        self._jobs: dict[str, _OpenRequest] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._arrived: list[tuple[_OpenRequest, PaidReply]] = []
        self._error: BaseException | None = None
        self._callers = 0
        """The calls of `complete` that have not ended."""
        self._run_over = False
        self._timer = None if run_seconds is None else self._loop.call_later(run_seconds, self._end_run, run_seconds)

    @property
    def notes(self) -> list[str]:
        """The notes of the backend."""
        return self._backend.notes

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """See `keystone.generation.llm.model.Model`. An error ends all open calls, and the next one begins anew."""
        await self._forget_error()
        stream = _Stream(enumerate(requests))
        self._streams.append(stream)
        self._callers += 1
        try:
            while True:
                self._start_workers()
                while stream.done:
                    yield stream.done.popleft()
                    if len(stream.done) == MOST_READY_OUTCOMES // 2:
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
            self._callers -= 1
            self._remove_stream(stream)
            self._deliver()

    def take_outcome(self, _step: Request, replied: Sequence[Request], refusal: str, _cut: bool, /) -> None:
        """See `keystone.generation.llm.model.TakesOutcomes`."""
        keep_outcome(self._cache, self.name, replied, refusal)

    async def close(self) -> None:
        """Cancel open requests. Replies that have arrived are kept."""
        if self._timer:
            self._timer.cancel()
        await asyncio.sleep(0)  # workers take the replies that have arrived
        self._deliver()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._deliver()
        await self._backend.close()

    async def _forget_error(self) -> None:
        """Forget an error and the requests that it ended, if no call is open and the time of the run is not over."""
        while self._error and not self._callers and not self._run_over and self._workers:
            await asyncio.wait(self._workers)
        if self._error and not self._callers and not self._run_over:
            self._deliver()
            self._error = None
            self._jobs.clear()

    def _start_workers(self) -> None:
        while len(self._workers) < self._backend.at_once and not self._error and (job := self._draw_request()):
            worker = self._loop.create_task(self._work(job))
            self._workers.add(worker)
            worker.add_done_callback(self._free_worker)

    def _free_worker(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled():
            for stream in self._streams:
                stream.wake()

    async def _work(self, job: _OpenRequest | None) -> None:
        try:
            while job:
                answered = await self._backend.answer(job.request)
                self._arrived.append((job, answered))
                if len(self._arrived) == 1:
                    self._loop.call_soon(self._deliver)
                job = self._draw_request()
        except Exception as error:
            self._fail(error)

    def _deliver(self) -> None:
        """Keep the replies that have arrived by one commit, and give them to the callers."""
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
            self.usage[job.request.purpose] += answered.usage
            if isinstance(outcome, Reply):
                self.prompts.note(job.request, answered.usage)
            for _, _, purpose in job.asked_by[1:]:
                self.usage[purpose] += Usage(cache_hits=1)
            for stream, number, _ in job.asked_by:
                stream.done.append((number, outcome))
                stream.pending -= 1
                stream.wake()
            del self._jobs[job.key]

    def _draw_request(self) -> _OpenRequest | None:
        """Draw the next request that the cache cannot answer, and answer those before it from the cache."""
        for stream in tuple(self._streams):
            while len(stream.done) < MOST_READY_OUTCOMES:
                try:
                    number, request = next(stream.numbered)
                    key = make_request_key(self.name, request)
                    known = self._cache.get(key)
                except Exception as error:  # StopIteration after the last request
                    stream.error = None if isinstance(error, StopIteration) else error
                    self._remove_stream(stream)
                    stream.wake()
                    break
                if known:
                    self.usage[request.purpose] += Usage(cache_hits=1)
                    self.prompts.note(request, known.usage)
                    stream.done.append((number, known.outcome))
                    stream.wake()
                    continue
                stream.pending += 1
                if same := self._jobs.get(key):
                    same.asked_by.append((stream, number, request.purpose))
                    continue
                job = self._jobs[key] = _OpenRequest(key, request, [(stream, number, request.purpose)])
                return job
        return None

    def _remove_stream(self, stream: _Stream) -> None:
        stream.drawn = True
        if stream in self._streams:
            self._streams.remove(stream)

    def _end_run(self, seconds: float) -> None:
        self._run_over = True
        self._fail(
            UserError(
                f"{self.name}: the run has reached its limit of {seconds:g} s. "
                "All replies are kept: run the same command again to continue"
            )
        )

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        for worker in self._workers:
            worker.cancel()
        for stream in (*self._streams, *(asking for job in self._jobs.values() for asking, _, _ in job.asked_by)):
            stream.wake()


OpenBackend = Callable[..., AbstractAsyncContextManager[OpenModel]]
"""Opens a model: `open_backend(settings, folder, retry)`. Its files are in the folder, unless the settings name others.

If `retry` is true, the model is asked again for replies that no reader could use.
"""


@asynccontextmanager
async def open_model(
    settings: ModelSettings,
    folder: Path,
    costs: Path | None = None,
    shares: Mapping[str, float] = NO_SHARES,
    retry: bool = False,
) -> AsyncIterator[OpenModel]:
    """Open the model of the settings, within a running event loop. `UserError` for wrong settings, keys and files.

    If the settings have a budget, the file `costs` keeps the cost of each call. `shares` then holds the share of the
    budget for some purposes: see `Purse`. Each backend is the module of its name in this package, with a function
    `open_backend` of the type `OpenBackend`.
    """
    open_backend: OpenBackend = import_module(f"keystone.generation.llm.{settings.backend}").open_backend
    with ExitStack() as stack:
        if settings.budget is not None:
            purse = Purse(settings.budget, settings.prices, costs, shares, settings.extra)
            stack.enter_context(closing(purse))
            open_backend = partial(open_backend, purse=purse)
        async with open_backend(settings, folder, retry) as model:
            yield model
