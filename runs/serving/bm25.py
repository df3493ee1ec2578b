"""BM25 of queries that arrive together, in one batch for each depth, language and setting."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Generic, TypeVar

from keystone.indexing.index import Index
from keystone.retrieval.backends import Sparse, open_sparse, open_store, renew_store
from keystone.retrieval.bm25 import search_languages
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Bm25
from keystone.runs.pipeline.ranking.rank import Hits

T = TypeVar("T")
R = TypeVar("R")


class Batches(Generic[T, R]):
    """Work on requests in batches, one batch at a time, in a separate thread.

    `work` returns one result for each request of a batch, in order. If it raises an error, each request is worked on
    alone, so that only those that cause an error get it. A batch has at most `most` requests. `lock` is held while a
    batch runs. Only one event loop may ask.
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
        """Add the counts of other batches, as if their requests had come to these."""
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


MOST_QUERIES = 256
"""The most queries of a batch."""
MOST_SEARCHERS = 4
"""The searchers, one for each language, k1 and b, that stay open."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, its depth, the parameters of BM25, and the language of the documents; None: all languages."""

    text: str
    depth: int
    bm25: Bm25
    language: str | None


@dataclass(frozen=True, slots=True)
class Bm25Batches:
    """The BM25 search of an index. `default` applies to requests that name no parameters."""

    default: Bm25
    batches: Batches[Asked, Hits]

    async def search(self, text: str, depth: int, bm25: Bm25 | None = None, language: str | None = None) -> Hits:
        """Rank the top `depth` documents of a query. `UserError` from the engine."""
        return await self.batches.ask(Asked(text, depth, bm25 or self.default, language))


def open_bm25(index: Index, bm25: Bm25, threads: int) -> Bm25Batches:
    """Open the BM25 search of an index. `UserError` if it cannot be opened."""
    shared = open_store(index)

    @lru_cache(MOST_SEARCHERS)
    def open_kept(own: Bm25, language: str | None) -> Sparse:
        return open_sparse(index if language is None else index.with_language(language), shared, own)

    def rank(texts: Sequence[str], own: Bm25, language: str | None, depth: int) -> list[Hits]:
        store, ids = renew_store(index, shared), [str(place) for place in range(len(texts))]
        if own.feedback or store is not shared:
            opened = OpenIndex(index, store, threads)
            rankings = search_languages(opened, own, ids, lambda _: texts, depth, language)
        else:
            rankings = open_kept(own, language).search(ids, texts, depth, threads)
        hits = list(zip(store.ids(rankings.docs), rankings.scores.tolist(), strict=True))
        return [hits[start:end] for start, end in pairwise(rankings.offsets.tolist())]

    def search(asked: Sequence[Asked]) -> list[Hits]:
        found: dict[int, Hits] = {}
        groups: dict[tuple[Bm25, str | None, int], list[int]] = {}
        for place, one in enumerate(asked):
            groups.setdefault((one.bm25, one.language, one.depth), []).append(place)
        for settings, places in groups.items():
            found |= zip(places, rank([asked[place].text for place in places], *settings), strict=True)
        return [found[place] for place in range(len(asked))]

    open_kept(bm25, None)
    return Bm25Batches(bm25, Batches(search, MOST_QUERIES))
