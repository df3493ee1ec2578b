"""The answer to one narrative, and the searches that narratives under way at the same time share."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import numpy as np

from keystone.generation.llm.model import Model
from keystone.generation.readers.reader import list_rows
from keystone.generation.rerank.candidates import Rerank
from keystone.generation.types import Answer
from keystone.indexing.types import Document
from keystone.indexing.vectors.of_documents import join_title_and_text
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Rankings, Topic, offsets_of
from keystone.runs.pipeline.answering.watch import Watch, list_hits
from keystone.runs.pipeline.grading.grade_files import find_grades, make_grade_records, make_judgments
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.queries import understand_topics
from keystone.runs.pipeline.ranking.fuse import fuse_each_narrative, fuse_each_query
from keystone.runs.pipeline.ranking.rank import choose_pool, rank_for_track, search_systems, summarise_documents
from keystone.runs.pipeline.ranking.rerank import rank_by_place, rerank_rows
from keystone.runs.pipeline.topic_steps import (
    Pool,
    SearchedTopic,
    grade_candidates,
    open_neighbours,
    open_run_reader,
    open_task,
    rank_graded,
)
from keystone.runs.tracks.rules import set_topic_limits

MOST_QUERIES = 16
"""The most queries of a batch. Embedding as many long texts takes a second."""


async def answer_topic(
    job: Job, model: Model | None, searches: "Searches", topic: Topic, watch: Watch | None = None
) -> Answer:
    """Answer one topic. The answer holds the fallbacks of all steps; `watch` is told each step as it is made."""
    one = replace(job, topics=[topic], track=set_topic_limits(job.track, [topic]))
    if job.ranks_candidates:  # with a store of its own, the rows of a REST search are freed with the topic
        one = replace(one, store=await asyncio.to_thread(open_store, job.index))
    (found,) = await understand_topics(one, model, searches.java)
    if watch:
        watch("queries", found.queries)
    searched = SearchedTopic(topic, found.queries, await searches.hybrid(one, found.queries))
    fallbacks = list(found.fallbacks)
    ranked = fuse_each_narrative(one.config, [topic], found.queries, searched.hybrid)
    ranking = ranked.of(0).tolist()
    if watch:
        watch("rankings", (list_hits(one.store, searched.hybrid), list_hits(one.store, ranked)[topic.id]))
    if searches.rerank and job.config.reranks_after("fusion"):
        ranking, reranked = await rerank_rows(one, searches.rerank, topic, ranking)
        fallbacks += reranked.fallbacks
        ranked = rank_by_place([topic.id], [ranking])
    if job.config.grading.method is not None:
        pool = Pool(choose_pool(one, topic.id, found.queries, searched.hybrid, ranking), ranking)
        graded = await grade_candidates(one, model, searched, pool, searches.find_neighbours)
        fallbacks += graded.fallbacks
        selected = [graded.rows[place] for place in graded.selected]
        records = list(make_grade_records([graded], one.store, ""))
        searched = replace(searched, grades=find_grades(records, one.store)[topic.id])
        ranked = rank_graded(one, [graded], ranked)
        if searches.rerank and (watch or one.answer_settings.reads_ranking) and job.config.reranks_after("grades"):
            ranking, reranked = await rerank_rows(one, searches.rerank, topic, ranked.of(0).tolist())
            fallbacks += reranked.fallbacks
            ranked = rank_by_place([topic.id], [ranking])
        if watch:
            watch("grades", tuple(make_judgments(records)))
        if one.answer_settings.reads_ranking:
            selected = ranked.of(0).tolist()
    else:
        selected = ranking
    task, hits = await open_task(one, searched, selected)
    if watch:
        watch("chosen", one.store.ids(list_rows(hits)))
    reader = open_run_reader(one, model, partial(search_rows, one, searches))
    evidence = await reader.gather(task, hits)
    if evidence.added:
        task, _ = await open_task(one, searched, selected, evidence.added)
    answer = await reader.answer(task, evidence)
    if watch:
        for sentence in answer.sentences:
            watch("sentence", sentence)
        watch("run", (await asyncio.to_thread(rank_for_track, one, found.queries, ranked))[topic.id])
    return replace(answer, fallbacks=(*fallbacks, *answer.fallbacks))


async def search_rows(job: Job, searches: "Searches", queries: Sequence[Query]) -> list[list[int]]:
    """Search for further queries of a topic's job; returns the rows that each finds, best first."""
    found = await searches.hybrid(job, queries)
    return [found.of(place).tolist() for place in range(len(queries))]


class Searches:
    """Searches for topics that come one by one. The queries that wait are searched in batches.

    A batch has at most `MOST_QUERIES` queries, so that a long narrative lets others search between its batches.
    In a candidate pool, each topic is searched alone and with its own store. So its answer does not depend on other
    topics.
    """

    def __init__(self, job: Job, model: Model | None, rerank: Rerank | None, java: asyncio.Lock | None = None) -> None:
        self.find_neighbours = open_neighbours(job)
        self.rerank = rerank
        """The reranker of all topics, or None."""
        self.java = java or asyncio.Lock()
        """Held by the caller of Java. Only one thread at a time may call it."""
        self._job, self._model = job, model
        self._is_whole = job.ranks_candidates or job.index.documents is None
        """Whether a topic's queries are searched at once, because rows of several searches do not compare."""
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Job, Sequence[Query], asyncio.Future[Rankings]]] = []
        self._running: asyncio.Task[None] | None = None

    async def hybrid(self, job: Job, queries: Sequence[Query]) -> Rankings:
        """Make the hybrid ranking of each query of a topic's job."""
        size = len(queries) if self._is_whole else MOST_QUERIES
        starts = range(0, len(queries), max(1, size)) or [0]
        parts = await asyncio.gather(*(self._ask(job, queries[start : start + size]) for start in starts))
        return _join_rankings(parts)

    async def _ask(self, job: Job, queries: Sequence[Query]) -> Rankings:
        found: asyncio.Future[Rankings] = self._loop.create_future()
        self._waiting.append((job, queries, found))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._search())
        return await found

    async def _search(self) -> None:
        while self._waiting:
            async with self.java:
                count = 1 if self._is_whole else self._count_batch()
                batch, self._waiting = self._waiting[:count], self._waiting[count:]
                queries = [query for _, own, _ in batch for query in own]
                try:
                    hybrid = await asyncio.to_thread(self._rankings, batch[0][0], queries)
                except Exception as error:
                    for _, _, found in batch:
                        if not found.done():
                            found.set_exception(error)
                    continue
            place = 0
            for _, own, found in batch:
                if not found.done():  # the topic may be cancelled
                    found.set_result(hybrid.select(range(place, place + len(own))))
                place += len(own)

    def _count_batch(self) -> int:
        """Count the waiting requests of the next batch: at least one, and as many as `MOST_QUERIES` allows."""
        sizes = accumulate(len(queries) for _, queries, _ in self._waiting)
        return max(1, sum(size <= MOST_QUERIES for size in sizes))

    def _rankings(self, job: Job, queries: Sequence[Query]) -> Rankings:
        texts_of = self._texts_of if job.config.retrieval.summarise else join_title_and_text
        return fuse_each_query(job.config, search_systems(job, queries, texts_of))

    def _texts_of(self, documents: Sequence[Document]) -> list[str]:
        work = summarise_documents(self._job, self._model, documents)
        summaries, _ = asyncio.run_coroutine_threadsafe(work, self._loop).result()
        return [summaries.get(document.id, document.contents) for document in documents]


def _join_rankings(parts: Sequence[Rankings]) -> Rankings:
    """Join the rankings of some queries and of the queries after them."""
    return Rankings(
        tuple(name for part in parts for name in part.query_ids),
        offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
        np.concatenate([part.docs for part in parts]),
        np.concatenate([part.scores for part in parts]),
    )
