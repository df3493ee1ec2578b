"""The steps for one topic of a job: grade its candidates, and open the task from which a reader answers it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from generation.context.topic import read_context
from generation.grading.grade import Candidates, GradedTopic, grade_topic
from generation.llm.model import Model
from generation.queries.compose import find_places
from generation.readers.reader import Hits, Reader, Task, Tools, choose_hits, list_rows, open_reader
from generation.types import Sentence
from retrieval.types import Query, Rankings, Topic
from runs.pipeline.job import Job
from runs.pipeline.rank import choose_pool, get_hybrid_scores
from runs.tracks.answer_files import cut_to_limits
from runs.tracks.rules import Track


@dataclass(frozen=True, slots=True)
class SearchedTopic:
    """A topic after the search, with all queries of its batch and the hybrid ranking of each."""

    topic: Topic
    queries: Sequence[Query]
    hybrid: Rankings

    @property
    def places(self) -> list[int]:
        """The places of the topic's decomposed queries in the batch."""
        return find_places(self.topic.id, self.queries)

    @property
    def own(self) -> list[Query]:
        """The topic's decomposed queries."""
        return [self.queries[place] for place in self.places]


async def grade_candidates(job: Job, model: Model | None, searched: SearchedTopic) -> GradedTopic:
    """Grade the candidates of a topic and select among them."""
    assert model is not None  # the configuration has been checked
    rows = choose_pool(job, searched.topic.id, searched.queries, searched.hybrid)
    context = await asyncio.to_thread(read_context, job.sources, rows, searched.own)
    scores = get_hybrid_scores(searched.hybrid, searched.places, rows)
    return await grade_topic(model, Candidates(searched.topic.id, context, scores), job.grade_settings)


def open_run_reader(job: Job, model: Model | None) -> Reader:
    """Open the reader of a job."""
    return open_reader(Tools(job.sources, model, job.answer_settings, job.config.reader))


async def open_task(job: Job, searched: SearchedTopic, selected: Sequence[int]) -> tuple[Task, Hits]:
    """Open the task to answer a topic, and choose its documents.

    These are the `selected` ones (rows of the store, best first), or those of each query.
    """
    topic = searched.topic
    of_queries = [searched.hybrid.of(place).tolist() for place in searched.places]
    hits = choose_hits(job.answer_settings, selected, of_queries)
    context = await asyncio.to_thread(read_context, job.sources, list_rows(hits), searched.own)
    cut = partial(_cut_to_track, topic.id, job.track)
    return Task(topic, context, job.get_word_limit(topic), cut, job.track.references), hits


def _cut_to_track(topic_id: str, track: Track, sentences: Sequence[Sentence]) -> list[Sentence]:
    return cut_to_limits(topic_id, sentences, track)
