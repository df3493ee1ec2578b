"""The evidence for each narrative, which a reader gathers from its documents."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import InLanguage, Model
from keystone.generation.readers.loop import tell_nobody
from keystone.generation.readers.reader import (
    Reader,
    Search,
    Tools,
    list_rows,
    open_reader,
)
from keystone.generation.readers.settings import (
    AgentSettings,
    EscalateSettings,
    StructureSettings,
    list_combined,
    set_combined,
)
from keystone.generation.types import EvidenceSet, Step
from keystone.indexing.types import Store
from keystone.retrieval.types import Query
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.evidence_files import EVIDENCE_FILE, TRACE_FILE, TopicStep
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic, Foreseen, foresee_reader
from keystone.runs.pipeline.job import TOPICS_AT_ONCE, Job
from keystone.runs.pipeline.model_runner import describe_model
from keystone.runs.pipeline.searches import Searches, search_rows
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages.answer_cost import list_answer_asks
from keystone.runs.pipeline.stages.chosen_documents import SearchedTopic, list_chosen, list_chosen_inputs, open_task
from keystone.runs.pipeline.stages.search import describe_retrieval
from keystone.runs.pipeline.values import Artifact

ASKS = ("answer.method",)


def gather_evidence(work: Work) -> None:
    """Gather the evidence for each narrative from its documents. A structure-aware reader's steps come with it.

    Given runs cannot be searched with an agent's texts. Without another system, the agent searches its documents alone.
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

    `tell` is told of each step of the research agent.
    """
    if model is not None and job.track.language:
        model = InLanguage(model, job.track.language)
    return open_reader(Tools(job.sources, model, job.answer_settings, job.config.reader, search, tell))


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
    for settings in [set_combined(reader, name) for name in list_combined(reader)] or [reader]:
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
