"""The evidence for each narrative, which a reader gathers from its documents."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from typing import Any

from pydantic import TypeAdapter

from keystone.generation.context.topic import keep_closest_segments, read_context, skip_blank
from keystone.generation.llm.model import InLanguage, Model, run_together
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
from keystone.generation.readers.settings import (
    READERS,
    AgentSettings,
    EscalateSettings,
    FusedSettings,
    StructureSettings,
)
from keystone.generation.rules.answer import SEARCHED_TIMES, choose_documents
from keystone.generation.types import EvidenceSet, Step
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.types import Store
from keystone.retrieval.types import Query, Rankings, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic, Foreseen, foresee_reader
from keystone.runs.pipeline.grade_files import find_grades
from keystone.runs.pipeline.job import TOPICS_AT_ONCE, Job
from keystone.runs.pipeline.model_runner import describe_model
from keystone.runs.pipeline.ranking.rank import embed_topic
from keystone.runs.pipeline.searches import Searches, search_rows
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages.answer_cost import list_answer_asks
from keystone.runs.pipeline.stages.grades import GRADES_FILE, RELEVANT_GRADE
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, get_queries
from keystone.runs.pipeline.stages.search import describe_retrieval
from keystone.runs.pipeline.values import Artifact, make_records_artifact
from keystone.runs.tracks.answer_files import cut_to_limits

ASKS = ("answer.method",)


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
class TopicStep:
    """A step of the reader of a topic."""

    topic_id: str
    step: Step


def _write_evidence(topic: Topic, found: EvidenceSet) -> dict[str, Any]:
    """Encode the evidence of a topic, without the steps: they have a file of their own.

    If the questions were checked, the record has the checks and the documents that were added.
    """
    record = {field.name: getattr(found, field.name) for field in fields(found) if field.name != "steps"}
    optional = ("checks", "added", "fallbacks")
    return {"topic_id": topic.id, **{key: value for key, value in record.items() if value or key not in optional}}


_read_evidence = TypeAdapter(EvidenceSet).validate_python
_read_step = TypeAdapter(Step).validate_python


def decode_step(record: dict[str, Any]) -> TopicStep:
    """Decode a line of a trace."""
    return TopicStep(record["topic_id"], _read_step(record))


EVIDENCE_FILE: Artifact[list[EvidenceSet]] = Artifact(
    file_names.EVIDENCE,
    lambda path, _: [_read_evidence(record) for _, record in read_json_lines(path)],
    lambda path, found, values: write_json_lines(path, map(_write_evidence, values.job.topics, found)),
)
"""The evidence of each topic, in the order of the job's topics."""
TRACE_FILE = make_records_artifact(
    file_names.TRACE, TopicStep, lambda one: {"topic_id": one.topic_id, **asdict(one.step)}, decode_step
)
"""The steps of a structure-aware reader."""


def gather_evidence(work: Work) -> None:
    """Gather the evidence for each narrative from its documents. A structure-aware reader's steps come with it.

    Given runs cannot search by an agent's texts. If there is no other system, the agent searches its documents alone.
    """
    job = work.job
    reads_given = isinstance(job.config.reader, AgentSettings) and not job.config.make_systems()

    @cache
    def open_searches() -> Searches:  # it belongs to the loop that runs now
        return work.means.open_searches(job)

    async def search(queries: Sequence[Query]) -> list[list[int]]:
        return await search_rows(job, open_searches(), queries)

    async def gather(model: Model | None, searched: SearchedTopic, selected: Sequence[int]) -> EvidenceSet:
        task, hits = await open_task(job, searched, selected)
        work.values.hold(searched.topic.id, task)
        work.watch("chosen", job.store.ids(list_rows(hits)))
        reader = open_run_reader(job, model, None if reads_given else search, partial(work.watch, "research"))
        return name_segments(await reader.gather(task, hits), job.store)

    topics = [partial(gather, searched=searched, selected=selected) for searched, selected in list_chosen(work)]
    found: list[EvidenceSet] = work_on_each_topic(work, "Gathering", topics)
    work.values.put(EVIDENCE_FILE, found)
    if job.config.reader.name != "plain":
        steps = [TopicStep(topic.id, step) for topic, one in zip(job.topics, found, strict=True) for step in one.steps]
        work.values.put(TRACE_FILE, steps)


def name_segments(found: EvidenceSet, store: Store) -> EvidenceSet:
    """Name the segments that overlap each item of the evidence."""
    ids = sorted({item.span.doc_id for item in found.items})
    segments = {document.id: document.segments for document in store.get(store.rows(ids))}
    named = (
        tuple(segment.id for segment in segments[item.span.doc_id] if segment.span.overlaps(item.span))
        for item in found.items
    )
    return replace(
        found, items=tuple(replace(item, segments=own) for item, own in zip(found.items, named, strict=True))
    )


def open_run_reader(
    job: Job, model: Model | None, search: Search | None = None, tell: Callable[[Step], None] = tell_nobody
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

    These are the documents that its grades select, or its ranking.
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


def work_on_each_topic(work: Work, name: str, topics: Sequence[Callable[..., Any]]) -> list[Any]:
    """Do the work for each topic; returns the results in order. Many topics use a model at one time."""
    at_once = TOPICS_AT_ONCE if work.job.config.model else 1
    with work.job.progress(name, len(topics)) as tick:

        async def work_on_one(model: Model | None, start: Callable[..., Any]) -> Any:
            found = await start(model)
            tick(1)
            return found

        return work.run_with_model(
            lambda model: run_together([partial(work_on_one, model, start) for start in topics], at_once)
        )


def list_chosen_inputs(before: Before) -> tuple[Artifact[Any], ...]:
    """List the files from which the documents of each topic are chosen."""
    grades = () if before.config.grading.method is None else (GRADES_FILE,)
    return (QUERIES_FILE, before.query_ranking, before.narrative_ranking, *grades)


def searches_again(config: RunConfig) -> bool:
    """Whether the reader searches for more documents, where those it has leave a question open."""
    fills_gaps = config.reader.name == "plain" and config.answer.method == "whole" and config.answer.rounds > 0
    return fills_gaps or isinstance(config.reader, AgentSettings)


def _make_key(job: Job, _: Before) -> Any:
    config = job.config
    asks = ASKS[0] in config.list_model_steps()
    window = config.model.window if config.model and asks else None
    searches = searches_again(config)
    model = describe_model(config, ASKS) if searches or config.reader.name != "plain" else None
    again = [config.answer.rounds, describe_retrieval(job), config.list_systems(), config.describe_first_stage()]
    plain = config.model_dump(mode="json", include={"reader", "answer"})
    drafts = isinstance(config.reader, EscalateSettings)  # a draft is an answer, by all settings of answers
    draft = [plain["answer"], job.plain_track]
    language = [job.track.language] if job.track.language else []
    return [
        plain["reader"], job.index.key, job.plain_topics,
        config.answer.method, config.answer.documents, window, model, *job.segment_settings, *(again * searches),
        *(draft if drafts else language),
    ]  # fmt: skip


def _foresee(asked: Asked, one: AskedTopic) -> Iterator[Ask | Foreseen]:
    """Foresee the calls of structure-aware readers, and the drafts of an escalation."""
    config, model, reader = asked.job.config, asked.model, asked.job.config.reader
    if config.answer.method == "rules":
        return
    each = config.answer.method in ("answers", "claims") and not isinstance(reader, AgentSettings)
    questions = one.queries if each else 1
    if isinstance(reader, EscalateSettings):
        yield foresee_reader(reader.name, 1, reader.calls, reader.tokens, model)
        for ask in list_answer_asks(config, one, model, "gather"):
            yield from [ask] * len(reader.to)
        return
    names = reader.readers if isinstance(reader, FusedSettings) else []
    read = [READERS[name].settings.model_validate({"name": name}) for name in names] or [reader]
    for settings in read:
        if isinstance(settings, StructureSettings):
            name = str(settings.model_dump()["name"])
            yield foresee_reader(name, questions, settings.calls, settings.tokens, model)


def _list_files(before: Before) -> tuple[Artifact[Any], ...]:
    return (EVIDENCE_FILE, *(() if before.config.reader.name == "plain" else (TRACE_FILE,)))


STAGE = StageKind(
    name="gather",
    wanted=lambda config: config.has_answers,
    makes=_list_files,
    reads=list_chosen_inputs,
    key=_make_key,
    work=gather_evidence,
    asks=ASKS,
    foresee=_foresee,
    notes=lambda _: (TRACE_FILE,),
    why_kept=lambda config: "searches the index" if searches_again(config) else "",
)
