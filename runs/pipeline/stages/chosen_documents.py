"""The documents that an answer is written from, chosen for each topic from the last ranking, or by their grades."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from keystone.generation.context.topic import keep_closest_segments, read_context, skip_blank
from keystone.generation.queries.compose import find_places
from keystone.generation.readers.reader import Hits, Task, choose_hits, list_rows
from keystone.generation.rules.answer import SEARCHED_TIMES, choose_documents
from keystone.retrieval.types import Query, Rankings, Topic
from keystone.runs.pipeline.grade_files import find_grades
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.ranking.rank import embed_topic
from keystone.runs.pipeline.stage import Before, Work
from keystone.runs.pipeline.stages.grades import GRADES_FILE, RELEVANT_GRADE
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, get_queries
from keystone.runs.pipeline.values import Artifact
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


async def open_task(
    job: Job, searched: SearchedTopic, selected: Sequence[int], added: Sequence[str] = ()
) -> tuple[Task, Hits]:
    """Open the task to answer a topic, and choose its documents. The documents `added` (ids) join its context.

    The documents are chosen from the `selected` ones (rows of the store, best first), or from those of each query.
    Documents without text are left out. If documents have a grade above 0 for a query, they are the query's documents.
    If the configuration ranks segments, each document has only its closest ones. If runs of other systems are given,
    a query without a ranking has the `selected` documents.
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
    narrow = None
    if job.config.ranks_segments:
        texts = await asyncio.to_thread(embed_topic, job, topic, searched.queries)
        narrow = partial(keep_closest_segments, texts=texts, most=job.config.segments_per_document)
        context = narrow(context)
    cut = partial(cut_to_limits, topic.id, track=job.track)
    return Task(topic, context, job.get_word_limit(topic), cut, job.track.references, narrow), hits


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


def list_chosen(work: Work) -> list[tuple[SearchedTopic, list[int]]]:
    """List the topics as searched, each with the rows of its documents, best first.

    These are the documents that its grades select, or those of its ranking.
    """
    job, values, before = work.job, work.values, work.before
    queries, hybrid = get_queries(values), values.get(before.query_ranking)
    records = values.get(GRADES_FILE) if job.config.grading.method else []
    known = find_grades(records, job.store)
    if records and not job.answer_settings.reads_ranking:
        chosen = {record.topic_id: job.store.rows(record.selected).tolist() for record in records}
    else:
        ranking = values.get(before.narrative_ranking)
        chosen = {topic.id: ranking.of(place).tolist() for place, topic in enumerate(job.topics)}
    return [(SearchedTopic(one, queries, hybrid, known.get(one.id, {})), chosen[one.id]) for one in job.topics]


def list_chosen_inputs(before: Before) -> tuple[Artifact[Any], ...]:
    """List the files from which the documents of each topic are chosen."""
    grades = () if before.config.grading.method is None else (GRADES_FILE,)
    return (QUERIES_FILE, before.query_ranking, before.narrative_ranking, *grades)
