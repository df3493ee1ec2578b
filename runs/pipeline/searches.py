"""The means of a job's stages: each on its own, or shared with the stages of other narratives that are under way."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, takewhile
from threading import Lock, Thread
from typing import Any, TypeVar

from keystone.generation.context.topic import read_context
from keystone.generation.grading.grade import FindNeighbours
from keystone.generation.llm.model import Model
from keystone.generation.queries.compose import make_narrative_query
from keystone.generation.rerank.open import Candidates, Rerank, Reranked, open_reranker
from keystone.generation.rerank.open import Means as RerankMeans
from keystone.indexing.embedder import Effort
from keystone.indexing.vectors.of_documents import TextsOf, document_vectors, join_title_and_text
from keystone.retrieval.backends import open_dense
from keystone.retrieval.faiss_search import find_neighbours
from keystone.retrieval.types import Query, Rankings, Topic, join_rankings
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import RunWithModel
from keystone.runs.pipeline.ranking.fuse_narratives import fuse_each_query
from keystone.runs.pipeline.ranking.search import search_systems

SearchLock = AbstractAsyncContextManager[Any]
"""A lock that is held during a search."""
NO_LOCK: SearchLock = nullcontext()
"""For a caller that searches alone."""


def open_neighbours(job: Job) -> FindNeighbours:
    """Open the search of the nearest documents. It opens the vectors of the index when they are first needed."""
    number, lock = job.config.grading.neighbours, Lock()
    open_once = cache(partial(open_dense, job.index, job.config.retrieval.faiss))

    def find(rows: Sequence[int]) -> list[list[int]]:
        with lock:
            vectors = document_vectors(job.index, job.store, rows, effort=Effort(job.threads))
            return find_neighbours(open_once(), rows, vectors, number, job.threads)

    async def find_in_thread(rows: Sequence[int]) -> list[list[int]]:
        return await asyncio.to_thread(find, rows) if number and rows else [[] for _ in rows]

    return find_in_thread


def open_configured_reranker(
    config: RunConfig, model: Model | None, threads: int = 1
) -> AbstractAsyncContextManager[Rerank | None]:
    """Open the reranker of a configuration, or None if it has none."""
    settings, window = config.rerank, config.model.window if config.model else 0
    means = RerankMeans(config.out, model, window, threads)
    return nullcontext() if settings.method is None else open_reranker(settings, means)


def open_job_reranker(job: Job, model: Model | None) -> AbstractAsyncContextManager[Rerank | None]:
    """Open the reranker of a job, or None if it has none."""
    return open_configured_reranker(job.config, model, job.threads)


async def rerank_rows(job: Job, rerank: Rerank, topic: Topic, rows: Sequence[int]) -> tuple[list[int], Reranked]:
    """Rank the first `rerank.depth` documents of a topic again; returns all rows of its ranking, best first."""
    first = rows[: job.config.rerank.depth]
    context = await asyncio.to_thread(read_context, job.sources, first, [make_narrative_query(topic)])
    found = await rerank(Candidates(topic.id, topic.narrative, context))
    return [*(first[place] for place in found.order), *rows[len(first) :]], found


S = TypeVar("S")
T = TypeVar("T")
MOST_QUERIES = 16
"""The most queries of a batch. Embedding as many long texts takes a second."""


class Searches:
    """Searches for topics that come one by one. The queries that wait are searched in batches.

    A batch has at most `MOST_QUERIES` queries, so that a long narrative lets others search between its batches.
    If a system ranks a pool of candidates, or the index is on a REST server, each topic is searched alone. On a REST
    server, each also has its own store. So an answer does not depend on other topics.
    """

    def __init__(self, job: Job, rerank: Rerank | None = None) -> None:
        self.find_neighbours = open_neighbours(job)
        self.rerank = rerank
        """The reranker of all topics, or None."""
        self.java = asyncio.Lock()
        """Held by the caller of Java. Only one thread at a time may call it."""
        self._is_whole = job.ranks_candidates or job.index.documents is None
        """Whether a topic's queries are searched in one batch, because rows of several searches do not compare."""
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Job, Sequence[Query], TextsOf, asyncio.Future[dict[str, Rankings]]]] = []
        self._running: asyncio.Task[None] | None = None

    async def search(
        self, job: Job, queries: Sequence[Query], texts_of: TextsOf = join_title_and_text
    ) -> dict[str, Rankings]:
        """Rank documents for each query of a topic's job by each system, as `search_systems` does."""
        size = len(queries) if self._is_whole else MOST_QUERIES
        starts = range(0, len(queries), max(1, size)) or [0]
        parts = await asyncio.gather(*(self._ask(job, queries[start : start + size], texts_of) for start in starts))
        return {name: join_rankings([part[name] for part in parts]) for name in parts[0]}

    async def _ask(self, job: Job, queries: Sequence[Query], texts_of: TextsOf) -> dict[str, Rankings]:
        found: asyncio.Future[dict[str, Rankings]] = self._loop.create_future()
        self._waiting.append((job, queries, texts_of, found))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._search())
        return await found

    async def _search(self) -> None:
        while self._waiting:
            async with self.java:
                count = 1 if self._is_whole else self._count_batch()
                batch, self._waiting = self._waiting[:count], self._waiting[count:]
                job, _, texts_of, _ = batch[0]
                queries = [query for _, own, _, _ in batch for query in own]
                try:
                    ranked = await asyncio.to_thread(search_systems, job, queries, texts_of)
                except Exception as error:
                    for *_, found in batch:
                        if not found.done():
                            found.set_exception(error)
                    continue
            place = 0
            for _, own, _, found in batch:
                if not found.done():  # the topic may be cancelled
                    places = range(place, place + len(own))
                    found.set_result({name: rankings.select(places) for name, rankings in ranked.items()})
                place += len(own)

    def _count_batch(self) -> int:
        """Count the waiting requests of the next batch: at least one, up to `MOST_QUERIES` of one configuration."""
        config = self._waiting[0][0].config
        alike = takewhile(lambda one: one[0].config is config, self._waiting)
        sizes = accumulate(len(queries) for _, queries, _, _ in alike)
        return max(1, sum(size <= MOST_QUERIES for size in sizes))


@dataclass(frozen=True, slots=True)
class Means:
    """How the stages of a job search, rerank and find neighbours."""

    search: Callable[[Job, Sequence[Query], TextsOf], dict[str, Rankings]] = search_systems
    """Ranks documents for queries by each system. The last argument returns the texts that are embedded."""
    open_rerank: Callable[[Job, Model | None], AbstractAsyncContextManager[Rerank | None]] = open_job_reranker
    open_neighbours: Callable[[Job], FindNeighbours] = open_neighbours
    open_searches: Callable[[Job], Searches] = Searches
    """Opens the search for topics that search one by one. It is called in an event loop."""
    search_lock: SearchLock = NO_LOCK
    """Held in the event loop by whoever searches the index there."""


ALONE = Means()
"""The means of a job that searches in one batch, while nobody else searches."""


def share_means(searches: Searches, run_with_model: RunWithModel) -> Means:
    """Share the searches, which are open in an event loop, with the stages of a topic, which run in a thread."""
    return Means(
        search=lambda job, queries, texts_of: run_with_model(lambda _: searches.search(job, queries, texts_of)),
        open_rerank=lambda _job, _model: nullcontext(searches.rerank),
        open_neighbours=lambda _job: searches.find_neighbours,
        open_searches=lambda _job: searches,
        search_lock=searches.java,
    )


async def search_rows(job: Job, searches: Searches, queries: Sequence[Query]) -> list[list[int]]:
    """Search for further queries of a topic's job; returns the rows that each finds, best first."""
    found = fuse_each_query(job.config, await searches.search(job, queries))
    return [found.of(place).tolist() for place in range(len(queries))]


async def work_in_thread(model: Model | None, task: Callable[[RunWithModel], T]) -> T:
    """Do a task in a thread, so that it may wait. If the task calls the model, the call runs in this event loop.

    If the caller is cancelled, what the task waits for is cancelled, and the task ends when it next asks for something.
    """
    loop, asked = asyncio.get_running_loop(), list[Any]()
    done: asyncio.Future[T] = loop.create_future()

    def run_with_model(work: Callable[[Model | None], Awaitable[S]]) -> S:
        async def run() -> S:
            return await work(model)

        waited = asyncio.run_coroutine_threadsafe(run(), loop)
        asked.append(waited)
        if done.cancelled():
            waited.cancel()
        try:
            return waited.result()
        finally:
            asked.remove(waited)

    def finish(settle: Callable[[], None]) -> None:
        if not done.done():
            settle()

    def start() -> None:
        try:
            found = task(run_with_model)
        except BaseException as error:
            _call_in(loop, partial(finish, partial(done.set_exception, error)))
        else:
            _call_in(loop, partial(finish, partial(done.set_result, found)))

    Thread(target=start, daemon=True).start()
    try:
        return await done
    finally:
        for waited in list(asked):
            waited.cancel()


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call a function in an event loop. If the loop has ended, nobody waits for it."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return
