"""The evidence for each narrative, which a reader gathers from its documents."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from typing import Any

from pydantic import TypeAdapter

from keystone.generation.llm.model import Model, run_together
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.readers.reader import list_rows
from keystone.generation.readers.settings import (
    READERS,
    AgentSettings,
    EscalateSettings,
    FusedSettings,
    StructureSettings,
)
from keystone.generation.types import EvidenceSet, Step
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.types import Store
from keystone.retrieval.types import Query, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.foresight import Asked, AskedTopic, Foreseen, foresee, foresee_reader
from keystone.runs.pipeline.grading.grade_files import find_grades, find_selected_rows
from keystone.runs.pipeline.job import TOPICS_AT_ONCE, Job
from keystone.runs.pipeline.model_runner import describe_model
from keystone.runs.pipeline.searches import Searches, search_rows
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages.answer_cost import list_answer_asks
from keystone.runs.pipeline.stages.grades import GRADES_FILE
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, get_queries
from keystone.runs.pipeline.stages.search import describe_retrieval
from keystone.runs.pipeline.topic_steps import SearchedTopic, open_run_reader, open_task
from keystone.runs.pipeline.values import Artifact, make_records_artifact

ASKS = ("answer.method",)


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
    """Gather the evidence for each narrative from its documents. A structure-aware reader's steps come with it."""
    job = work.job

    @cache
    def open_searches() -> Searches:  # it belongs to the loop that runs now
        return work.means.open_searches(job)

    async def search(queries: Sequence[Query]) -> list[list[int]]:
        return await search_rows(job, open_searches(), queries)

    async def gather(model: Model | None, searched: SearchedTopic, selected: Sequence[int]) -> EvidenceSet:
        task, hits = await open_task(job, searched, selected)
        work.values.hold(searched.topic.id, task)
        work.watch("chosen", job.store.ids(list_rows(hits)))
        reader = open_run_reader(job, model, search, partial(work.watch, "research"))
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


def list_chosen(work: Work) -> list[tuple[SearchedTopic, list[int]]]:
    """List the topics as searched, each with the rows of its documents, best first.

    These are the documents that its grades select, or its ranking.
    """
    job, values, before = work.job, work.values, work.before
    queries, hybrid = get_queries(values), values.get(before.query_ranking)
    records = values.get(GRADES_FILE) if job.config.grading.method else []
    known = find_grades(records, job.store)
    if records and not job.answer_settings.reads_ranking:
        chosen = find_selected_rows(records, job.store)
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
    return [
        config.model_dump(mode="json", include={"reader"})["reader"], job.index.key, job.plain_topics,
        config.answer.method, config.answer.documents, window, model, *job.segment_settings, *(again * searches),
    ]  # fmt: skip


def _list_reader_calls(config: RunConfig, one: AskedTopic, model: ModelSettings) -> Iterator[Foreseen]:
    """List the calls of structure-aware readers, and the drafts of an escalation."""
    reader = config.reader
    each = config.answer.method in ("answers", "claims") and not isinstance(reader, AgentSettings)
    questions = one.queries if each else 1
    if isinstance(reader, EscalateSettings):
        yield foresee_reader(reader.name, 1, reader.calls, reader.tokens, model)
        for ask in list_answer_asks(config, one, model, "gather"):
            for _ in reader.to:
                yield foresee(ask, model)
        return
    names = reader.readers if isinstance(reader, FusedSettings) else []
    read = [READERS[name].settings.model_validate({"name": name}) for name in names] or [reader]
    for settings in read:
        if isinstance(settings, StructureSettings):
            name = str(settings.model_dump()["name"])
            yield foresee_reader(name, questions, settings.calls, settings.tokens, model)


def _foresee(asked: Asked) -> Iterator[Foreseen]:
    if asked.job.config.answer.method != "rules":
        for one in asked.topics:
            yield from _list_reader_calls(asked.job.config, one, asked.model)


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
