"""The steps of a narrative in an event loop and a thread of their own, so that they keep no other request waiting."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from keystone.generation.llm.model import Model
from keystone.generation.rerank.candidates import Rerank
from keystone.generation.types import Answer
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.answering.one_topic import answer_topic, work_on_topic
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import RunWithModel, open_model_runner
from keystone.runs.pipeline.ranking.fuse import fuse_each_query
from keystone.runs.pipeline.ranking.rank import Hits
from keystone.runs.pipeline.ranking.rerank import open_configured_reranker
from keystone.runs.pipeline.ranking.search import search_by_one, search_systems
from keystone.runs.pipeline.searches import Searches, share_means
from keystone.runs.pipeline.stage import Watch
from keystone.runs.pipeline.stages import queries
from keystone.runs.pipeline.stages.narrative import NARRATIVE_FILE
from keystone.runs.pipeline.stages.queries import get_queries
from keystone.runs.pipeline.table import NARRATIVE_STAGES, perform
from keystone.runs.pipeline.values import MemoryValues
from keystone.runs.serving.bm25 import Batches

T = TypeVar("T")
MOST_QUERIES = 64
"""The most queries of a batch of the search by a system or by all."""


@dataclass(frozen=True, slots=True)
class Models:
    """The model and the reranker of a configuration, both open, in the event loop `loop`. They outlast an index."""

    model: Model | None
    rerank: Rerank | None
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class Engine:
    """A job with its model, both open, in the event loop `loop`. All methods run there."""

    job: Job
    model: Model | None
    searches: Searches
    systems: dict[str, Batches[Query, Hits]]
    """The search by each system alone, by its name."""
    hybrid: Batches[Query, Hits]
    loop: asyncio.AbstractEventLoop

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one of the methods for a caller in another event loop. If the caller is cancelled, so is the work."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def decompose(self, topic: Topic) -> tuple[Query, ...]:
        """Make the queries of a narrative."""

        def make(job: Job, run_with_model: RunWithModel) -> tuple[Query, ...]:
            values, means = MemoryValues(job), share_means(self.searches, run_with_model)
            perform(values, run_with_model, lambda kind: kind is queries.STAGE, means)
            return tuple(get_queries(values))

        return await work_on_topic(self.job, self.model, topic, make)

    async def search_decomposed(self, topic: Topic) -> Hits:
        """Make the ranking of a narrative: decompose it, search each query, fuse all."""

        def rank(job: Job, run_with_model: RunWithModel) -> Hits:
            values, means = MemoryValues(job), share_means(self.searches, run_with_model)
            perform(values, run_with_model, lambda kind: kind in NARRATIVE_STAGES, means)
            ranking = values.get(NARRATIVE_FILE)
            return list(zip(job.store.ids(ranking.of(0)), ranking.scores_of(0).tolist(), strict=True))

        return await work_on_topic(self.job, self.model, topic, rank)

    async def answer(self, topic: Topic, watch: Watch | None) -> Answer:
        """Answer a narrative; `watch` is called in a thread."""
        return await answer_topic(self.job, self.model, self.searches, topic, watch)


@contextmanager
def open_models(config: RunConfig, threads: int) -> Iterator[Models]:
    """Open the model and the reranker of a configuration, and their event loop. `UserError` if one cannot be opened."""
    opened: Future[tuple[Models, asyncio.Event]] = Future()

    async def wait_for_end(model: Model | None) -> None:
        async with open_configured_reranker(config, model, threads) as rerank:
            ended = asyncio.Event()
            opened.set_result((Models(model, rerank, asyncio.get_running_loop()), ended))
            await ended.wait()

    def work() -> None:
        with open_model_runner(config, config.out) as run_with_model:
            run_with_model(wait_for_end)

    with ThreadPoolExecutor(1, "engine") as thread:
        done = thread.submit(work)
        waited: list[Future[Any]] = [opened, done]
        wait(waited, return_when=FIRST_COMPLETED)
        if done.done():
            done.result()
        models, ended = opened.result()
        try:
            yield models
        finally:
            models.loop.call_soon_threadsafe(ended.set)
            done.result()


def make_engine(job: Job, models: Models) -> Engine:
    """Make the engine of a job in the event loop of its models."""

    async def make() -> Engine:
        searches = Searches(job, models.rerank)
        most = 1 if job.ranks_candidates else MOST_QUERIES  # the queries of a batch share their candidates
        by_name = {name: Batches(_search_by(name, job), most, searches.java) for name in list_systems(job.config)}
        hybrid = Batches(_search_by(None, job), most, searches.java)
        return Engine(job, models.model, searches, by_name, hybrid, models.loop)

    return asyncio.run_coroutine_threadsafe(make(), models.loop).result()


def list_systems(config: RunConfig) -> list[str]:
    """List the systems that a request can name: `bm25`, `dense`, and those of the configuration that read queries."""
    own = [name for name, system in config.make_systems().items() if system.reads == "query"]
    return list(dict.fromkeys(["bm25", "dense", *own]))


def _search_by(name: str | None, job: Job) -> Callable[[Sequence[Query]], list[Hits]]:
    """Return the search by one system, or by all if `name` is None, whose rankings are fused."""
    retrieval = job.config.retrieval.model_copy(update={"runs": []})
    fusion = job.config.fusion.model_copy(update={"systems": job.config.first_stage})
    config = job.config.model_copy(update={"retrieval": retrieval, "fusion": fusion})

    def search(queries: Sequence[Query]) -> list[Hits]:
        own = replace(job, config=config, store=open_store(job.index) if job.ranks_candidates else job.store, given=())
        rankings = (
            fuse_each_query(config, search_systems(own, queries)) if name is None else search_by_one(own, queries, name)
        )
        return [
            list(zip(own.store.ids(rankings.of(i)), rankings.scores_of(i).tolist(), strict=True))
            for i in range(len(queries))
        ]

    return search
