"""The stages that a run would make, and its calls and tokens at most. Nothing is written, and no model is asked."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from keystone.generation.llm.usage import Budget, Prices, add_usage
from keystone.generation.queries.compose import find_places
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.directory import Plan, plan_stages
from keystone.runs.pipeline.foresight import Asked, AskedTopic, Foreseen
from keystone.runs.pipeline.job import Job, open_job
from keystone.runs.pipeline.manifest import describe_inputs
from keystone.runs.pipeline.queries import QUERY_METHODS, UnderstoodTopic, list_queries
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, bound_queries
from keystone.runs.pipeline.stages.rerank import foresee_endpoint
from keystone.runs.pipeline.table import bind_stages, list_wanted
from keystone.runs.pipeline.values import Values


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
    """Foresee a run. Its index, topics and run directory are read. `UserError` as from `pipeline.run.run`."""
    job = open_job(config, threads)
    plans = plan_stages(job.directory, bind_stages(job), describe_inputs(job)["versions"])
    stages = tuple(ForeseenStage(stage.name, plan, stage.artifacts) for stage, plan in plans)
    left = {stage.name for stage in stages if stage.plan != "kept"}
    understood = None if "queries" in left else Values(job.directory, job).get(QUERIES_FILE)
    asks = any(stage.asks and stage.name in left for stage, _ in list_wanted(config))
    asked = Asked(job, _bound_topics(job, understood) if asks else [])
    calls = [one for one in _list_calls(asked) if one.stage in left and one.most.calls]
    reranker = foresee_endpoint(asked) if "rerank" in left else None
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
            number, characters = bound_queries(config, topic, model.thinking)
        else:
            own = [known[place].question for place in find_places(topic.id, known)]
            number, characters = len(own), sum(map(len, own))
        topics.append(AskedTopic(topic, number, characters, job.get_word_limit(topic)))
    return topics


def _list_calls(asked: Asked) -> Iterator[Foreseen]:
    """List the calls of all stages for all topics."""
    if asked.job.config.model is not None:
        for stage, _ in list_wanted(asked.job.config):
            yield from stage.foresee(asked)


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
