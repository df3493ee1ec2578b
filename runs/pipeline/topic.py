"""One topic of a job: its candidates graded, its evidence gathered, its answer made."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from generation.context.topic import read_context
from generation.grade import Candidates, Graded, grade_topic
from generation.llm.model import Model
from generation.queries.compose import places_of
from generation.readers.reader import Hits, Reader, Task, Tools, choose_hits, open_reader, rows_of
from generation.types import Sentence
from retrieval.types import Query, Rankings, Topic
from runs.pipeline.job import Job
from runs.pipeline.rank import pool_of, scores_of
from runs.tracks.answer_files import cut_to_limits
from runs.tracks.rules import Track

READER = "plain"
"""The reader of all runs: a name of `generation.readers.reader.READERS`."""


@dataclass(frozen=True, slots=True)
class Searched:
    """What was searched for a topic and found: all queries of the batch, and the hybrid ranking of each."""

    topic: Topic
    queries: Sequence[Query]
    hybrid: Rankings

    @property
    def places(self) -> list[int]:
        """The places of the topic's decomposed queries in the batch."""
        return places_of(self.topic.id, self.queries)

    @property
    def own(self) -> list[Query]:
        """The topic's decomposed queries."""
        return [self.queries[place] for place in self.places]


async def grade(job: Job, model: Model | None, searched: Searched) -> Graded:
    """Grade the candidates of a topic and select among them."""
    assert model is not None  # the configuration has been checked
    rows = pool_of(job, searched.topic.id, searched.queries, searched.hybrid)
    context = await asyncio.to_thread(read_context, job.sources, rows, searched.own)
    scores = scores_of(searched.hybrid, searched.places, rows)
    return await grade_topic(model, Candidates(searched.topic.id, context, scores), job.grade_settings)


def reader_of(job: Job, model: Model | None) -> Reader:
    """The reader of a job."""
    return open_reader(READER, Tools(job.sources, model, job.answer_settings))


async def open_task(job: Job, searched: Searched, selected: Sequence[int]) -> tuple[Task, Hits]:
    """The task to answer a topic, and the documents to answer it from.

    These are the `selected` ones (rows of the store, best first), or those of each query.
    """
    topic = searched.topic
    of_queries = [searched.hybrid.of(place).tolist() for place in searched.places]
    hits = choose_hits(job.answer_settings, selected, of_queries)
    context = await asyncio.to_thread(read_context, job.sources, rows_of(hits), searched.own)
    return Task(topic, context, job.words_for(topic), partial(_accepted, topic.id, job.track)), hits


def _accepted(topic_id: str, track: Track, sentences: Sequence[Sentence]) -> list[Sentence]:
    return cut_to_limits(topic_id, sentences, track)
