"""The steps for one topic of a job: grade its candidates, and open the task from which a reader answers it."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from threading import Lock

from keystone.generation.context.topic import TopicContext, keep_closest_segments, read_context, skip_blank
from keystone.generation.grading.grade import SELECTIONS, Beyond, Candidates, FindNeighbours, GradedTopic, grade_topic
from keystone.generation.llm.model import InLanguage, Model
from keystone.generation.queries.compose import find_places
from keystone.generation.readers.loop import tell_nobody
from keystone.generation.readers.reader import (
    Hits,
    Reader,
    Search,
    Task,
    Tools,
    choose_hits,
    list_rows,
    open_reader,
)
from keystone.generation.rules.answer import SEARCHED_TIMES, choose_documents
from keystone.generation.types import Step as AgentStep
from keystone.indexing.vectors.of_documents import document_vectors
from keystone.indexing.vectors.types import Effort
from keystone.retrieval.backends import open_dense
from keystone.retrieval.faiss_search import find_neighbours
from keystone.retrieval.types import Query, Rankings, Topic
from keystone.runs.pipeline.grading.grade_files import make_keystone_rankings
from keystone.runs.pipeline.grading.rounds import RELEVANT_GRADE
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.ranking.fuse import round_scores
from keystone.runs.pipeline.ranking.rank import embed_topic, find_graded_places, get_hybrid_scores
from keystone.runs.tracks.answer_files import cut_to_limits


@dataclass(frozen=True, slots=True)
class SearchedTopic:
    """A topic after the search, with all queries of its batch and the hybrid ranking of each."""

    topic: Topic
    queries: Sequence[Query]
    hybrid: Rankings
    grades: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """The grades above 0, by the id of the query, then by the row of the document."""

    @property
    def places(self) -> list[int]:
        """The places of the topic's decomposed queries in the batch."""
        return find_places(self.topic.id, self.queries)

    @property
    def own(self) -> list[Query]:
        """The topic's decomposed queries."""
        return [self.queries[place] for place in self.places]


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of a topic, and its whole ranking, down which grading may go on: rows of the store, best first.

    If the ranking is empty, only the candidates are graded.
    """

    rows: Sequence[int]
    ranking: Sequence[int]


FIRST_GRADED = 5
"""With a budget, this number of documents of every topic is graded before any further one."""


def list_grading_steps(pools: Sequence[Pool]) -> Iterator[Sequence[Pool]]:
    """List the steps in which a budget is spent on grades: the first 5 documents of all pools, 10, 20, and so on.

    The last step is the pools as they are. Replies to the steps before are kept, so no document costs twice.
    """
    most = FIRST_GRADED
    while any(len(pool.rows) > most for pool in pools):
        yield [Pool(pool.rows[:most], ()) for pool in pools]
        most *= 2
    yield pools


async def grade_candidates(
    job: Job, model: Model | None, searched: SearchedTopic, pool: Pool, find_near: FindNeighbours
) -> GradedTopic:
    """Grade the candidates of a topic and select among them."""
    assert model is not None  # the configuration has been checked
    places = find_graded_places(job.config, searched.topic.id, searched.queries)
    queries = [searched.queries[place] for place in places]

    async def read(rows: Sequence[int]) -> TopicContext:
        return await asyncio.to_thread(read_context, job.sources, rows, queries)

    most = job.config.grading.deeper
    beyond = Beyond(pool.ranking, find_near, read, most) if most and pool.ranking else None
    scores = get_hybrid_scores(searched.hybrid, places, pool.rows)
    candidates = Candidates(searched.topic.id, await read(pool.rows), scores)
    return await grade_topic(model, candidates, job.grade_settings, beyond)


def rank_graded(job: Job, graded: Sequence[GradedTopic], narrative: Rankings) -> Rankings:
    """Rank the documents that the grades select first, and then the narrative ranking of each topic.

    If a method selects a set, and the track allows any number of rows, nothing follows the set.
    """
    is_set = SELECTIONS[job.config.grading.select].is_set
    alone = is_set and job.config.track is not None and job.track.rows is None
    return round_scores(make_keystone_rankings(graded, narrative, alone))


def open_neighbours(job: Job) -> FindNeighbours:
    """Open the search of the nearest documents. It opens the vectors of the index when they are needed first."""
    number, lock = job.config.grading.neighbours, Lock()
    open_once = cache(partial(open_dense, job.index, job.config.retrieval.faiss))

    def find(rows: Sequence[int]) -> list[list[int]]:
        with lock:
            vectors = document_vectors(job.index, job.store, rows, effort=Effort(job.threads))
            return find_neighbours(open_once(), rows, vectors, number, job.threads)

    async def find_in_thread(rows: Sequence[int]) -> list[list[int]]:
        return await asyncio.to_thread(find, rows) if number and rows else [[] for _ in rows]

    return find_in_thread


def open_run_reader(
    job: Job, model: Model | None, search: Search | None = None, tell: Callable[[AgentStep], None] = tell_nobody
) -> Reader:
    """Open the reader of a job, which writes in the track's language. `search` is for readers that search again.

    `tell` is told each step of the research agent.
    """
    if model is not None and job.track.language:
        model = InLanguage(model, job.track.language)
    return open_reader(Tools(job.sources, model, job.answer_settings, job.config.reader, search, tell))


async def open_task(
    job: Job, searched: SearchedTopic, selected: Sequence[int], added: Sequence[str] = ()
) -> tuple[Task, Hits]:
    """Open the task to answer a topic, and choose its documents. Those with the ids `added` are among its context.

    These are among the `selected` ones (rows of the store, best first), or those of each query, without documents that
    have no text. If documents have a grade above 0 for a query, they are the query's documents. If the configuration
    ranks segments, each document has only its closest ones. If runs of other systems are given, a query without a
    ranking has the `selected` documents.
    """
    topic = searched.topic
    unranked = list(selected) if job.config.retrieval.runs else []
    of_queries = [searched.hybrid.of(place).tolist() or unranked for place in searched.places]
    documents = job.answer_settings.documents
    if job.answer_settings.is_by_query:
        grades = [searched.grades.get(query.id, {}) for query in searched.own]
        of_queries = [rank_by_grade(own, rows) or rows for own, rows in zip(grades, of_queries, strict=True)]
    most = SEARCHED_TIMES * documents
    if job.answer_settings.is_by_query:
        of_queries = [await asyncio.to_thread(skip_blank, job.store, rows, most) for rows in of_queries]
    else:
        selected = await asyncio.to_thread(skip_blank, job.store, selected, most)
    if job.answer_settings.method == "rules" and job.config.reader.name == "plain":
        selected = await asyncio.to_thread(choose_documents, job.sources, searched.own, selected, documents)
    if job.answer_settings.reads_ranking:
        grades = [searched.grades.get(query.id, {}) for query in searched.own]
        selected = cover_queries(selected, grades, documents)
    hits = choose_hits(job.answer_settings, selected, of_queries)
    rows = list(dict.fromkeys([*list_rows(hits), *job.store.rows(added).tolist()]))
    context = await asyncio.to_thread(read_context, job.sources, rows, searched.own)
    if job.config.ranks_segments:
        texts = await asyncio.to_thread(embed_topic, job, topic, searched.queries)
        context = keep_closest_segments(context, texts, job.config.segments_per_document)
    cut = partial(cut_to_limits, topic.id, track=job.track)
    return Task(topic, context, job.get_word_limit(topic), cut, job.track.references), hits


def cover_queries(rows: Sequence[int], grades: Sequence[Mapping[int, float]], number: int) -> list[int]:
    """Choose the first `number` documents of a ranking, so that each query has a document that answers it, if any does.

    `grades` has the grades of each query by row. If none of the first documents has `RELEVANT_GRADE` for a query, the
    first later one with that grade takes the place of the last of them.
    """
    first, later = list(rows[:number]), rows[number:]
    relevant = [{row for row, grade in own.items() if grade >= RELEVANT_GRADE} for own in grades]
    for own in relevant:
        needed = next((row for row in later if row in own), None)
        if needed is None or not own.isdisjoint(first):
            continue
        free = [row for row in first if all(row not in other or len(other & {*first}) > 1 for other in relevant)]
        if free:
            first.remove(free[-1])
            first.append(needed)
    return first


def rank_by_grade(grades: Mapping[int, float], rows: Sequence[int]) -> list[int]:
    """Rank documents by their grades, the highest first, and then as in `rows`; those that `rows` lacks are last."""
    place = {row: number for number, row in enumerate(rows)}
    return sorted(grades, key=lambda row: (-grades[row], place.get(row, len(rows)), row))
