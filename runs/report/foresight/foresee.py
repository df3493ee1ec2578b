"""The stages that a run would make, and its calls and tokens at most. Nothing is written, and no model is asked."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from keystone.generation.context.tokens import CHARACTERS_PER_TOKEN
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.llm.usage import Budget, Prices, add_usage
from keystone.generation.queries.compose import find_places
from keystone.generation.readers.settings import READER_SETTINGS, EscalateSettings, FusedSettings, StructureSettings
from keystone.generation.rerank.endpoint import BATCH_PASSAGES
from keystone.generation.types import Usage
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.artifacts import list_artifacts
from keystone.runs.pipeline.directory import Plan, Values, plan_stages
from keystone.runs.pipeline.job import Job, open_job
from keystone.runs.pipeline.manifest import describe_inputs
from keystone.runs.pipeline.model_runner import open_model_runner
from keystone.runs.pipeline.queries import QUERY_METHODS, UnderstoodTopic, list_queries
from keystone.runs.pipeline.stages import list_stages
from keystone.runs.report.foresight.asks import Foreseen, foresee, foresee_reader
from keystone.runs.report.foresight.of_answers import list_answer_asks
from keystone.runs.report.foresight.of_topics import (
    AskedTopic,
    bound_queries,
    list_grade_asks,
    list_query_asks,
    list_rerank_asks,
    list_summary_asks,
)

ASKING_STAGES = {"queries", "search", "rerank", "grades", "gather", "answer"}
"""The stages that may ask a model or a reranker."""
UNKNOWN_DOCUMENTS = 10**12
"""The documents of an index whose engine does not tell their number."""


@dataclass(frozen=True, slots=True)
class ForeseenStage:
    """A stage, the fate of its artifacts, and their names."""

    name: str
    plan: Plan
    artifacts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Foresight:
    """A run before it is made: its stages, and its calls by purpose, in the order of the stages.

    `reranker` is the cost of the reranker's server: requests, and the tokens of queries and passages, or None.
    """

    directory: str
    topics: int
    stages: tuple[ForeseenStage, ...]
    calls: tuple[Foreseen, ...]
    reranker: Foreseen | None
    prices: Prices | None
    budget: Budget | None


def foresee_run(config: RunConfig, threads: int = 1) -> Foresight:
    """Foresee a run. Its index, topics and run directory are read. `UserError` as from `pipeline.stages.run`."""
    job = open_job(config, threads)
    values = Values(job.directory)
    files = list_artifacts(job, values)
    with open_model_runner(config, None) as run_with_model:
        table = list_stages(job, run_with_model, files)
    plans = plan_stages(job.directory, table, describe_inputs(job)["versions"])
    stages = tuple(ForeseenStage(stage.name, plan, stage.artifacts) for stage, plan in plans)
    left = {stage.name for stage in stages if stage.plan != "kept"}
    understood = None if "queries" in left else values.get(files.queries)
    topics = (
        _bound_topics(job, understood) if left & {"queries", "search", "rerank", "grades", "gather", "answer"} else []
    )
    calls = [one for one in _list_calls(job, topics) if one.stage in left and one.most.calls]
    reranker = _foresee_reranker(job, topics) if "rerank" in left else None
    model = config.model
    budget, prices = (model.budget, model.prices) if model else (None, None)
    order = [stage.name for stage in stages]
    joined = sorted(_join(calls), key=lambda one: order.index(one.stage))
    return Foresight(str(job.directory), len(job.topics), stages, tuple(joined), reranker, prices, budget)


def _bound_topics(job: Job, understood: list[UnderstoodTopic] | None) -> list[AskedTopic]:
    """Bound the queries of each topic. They are known, or made without a model, or bounded by the settings."""
    config, model = job.config, job.config.model

    async def understand() -> list[UnderstoodTopic]:
        return await QUERY_METHODS[config.queries.method].understand(job, None, nullcontext())

    if understood is None and "queries.method" not in config.list_model_steps():
        understood = asyncio.run(understand())
    known = None if understood is None else list_queries(understood)
    topics = []
    for topic in job.topics:
        if known is None:
            assert model is not None  # the configuration has been checked
            number, characters = bound_queries(config, topic, model)
        else:
            own = [known[place].question for place in find_places(topic.id, known)]
            number, characters = len(own), sum(map(len, own))
        topics.append(AskedTopic(topic, number, characters, job.get_word_limit(topic)))
    return topics


def _list_calls(job: Job, topics: Sequence[AskedTopic]) -> Iterator[Foreseen]:
    """List the calls of all stages for each topic."""
    config, model = job.config, job.config.model
    if model is None:
        return
    documents = _count_documents(job)
    for one in topics:
        asks = [
            *list_query_asks(config, one, model),
            *list_rerank_asks(config, one, documents, model),
            *list_grade_asks(config, one, documents),
        ]
        yield from (foresee(ask, model) for ask in asks)
    if job.ranks_candidates:
        yield from (foresee(ask, model) for ask in list_summary_asks(config, topics, documents, model))
    if config.track is None or config.answer.method in (None, "rules"):
        return
    for one in topics:
        yield from _list_reader_calls(config, one, model)
        yield from (foresee(ask, model) for ask in list_answer_asks(config, one, model, "answer"))


def _list_reader_calls(config: RunConfig, one: AskedTopic, model: ModelSettings) -> Iterator[Foreseen]:
    """List the calls of the stage `gather`: those of structure-aware readers, and the drafts of an escalation."""
    reader = config.reader
    questions = one.queries if config.answer.method in ("answers", "claims") else 1
    if isinstance(reader, EscalateSettings):
        yield foresee_reader(reader.name, 1, reader.calls, reader.tokens, model)
        for ask in list_answer_asks(config, one, model, "gather"):
            for _ in reader.to:
                yield foresee(ask, model)
        return
    names = reader.readers if isinstance(reader, FusedSettings) else []
    read = [READER_SETTINGS[name].model_validate({"name": name}) for name in names] or [reader]
    for settings in read:
        if isinstance(settings, StructureSettings):
            name = str(settings.model_dump()["name"])
            yield foresee_reader(name, questions, settings.calls, settings.tokens, model)


def _foresee_reranker(job: Job, topics: Sequence[AskedTopic]) -> Foreseen | None:
    """Foresee the requests to the reranker's server. A segment's tokens are bounded as those of a prompt."""
    settings = job.config.rerank
    if settings.method != "endpoint" or settings.endpoint is None:
        return None
    deepest = max((job.config.fusion.get_depth(one.topic.id) for one in topics), default=0)
    depth = min(settings.depth, deepest, _count_documents(job))
    passages = depth * settings.segments
    requests = len(topics) * -(-passages // BATCH_PASSAGES)
    characters = sum(passages * (len(one.topic.narrative) + CHARACTERS_PER_TOKEN * settings.tokens) for one in topics)
    likely = Usage(requests, characters // CHARACTERS_PER_TOKEN)
    return Foreseen("rerank", settings.endpoint.name, Usage(requests, characters), likely)


def _count_documents(job: Job) -> int:
    return UNKNOWN_DOCUMENTS if job.index.documents is None else job.index.documents


def _join(calls: Sequence[Foreseen]) -> list[Foreseen]:
    """Join the calls of all topics for the same stage and purpose."""
    joined: dict[tuple[str, str], Foreseen] = {}
    for one in calls:
        before = joined.get((one.stage, one.purpose))
        joined[one.stage, one.purpose] = (
            Foreseen(one.stage, one.purpose, add_usage(before.most, one.most), add_usage(before.likely, one.likely))
            if before
            else one
        )
    return list(joined.values())
