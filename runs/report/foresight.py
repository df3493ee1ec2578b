"""The stages, calls and tokens of a run before it is made. Nothing is written, and no model is asked."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from keystone.generation.llm.usage import Budget, Prices, compute_cost
from keystone.generation.queries.compose import find_places
from keystone.generation.types import Usage
from keystone.indexing.encoders.weights import Footprint, measure_footprint
from keystone.retrieval.dense import DenseSystem
from keystone.retrieval.impact import ImpactSystem
from keystone.retrieval.late import LateSystem, PlaidSystem
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.directory import Plan, Stage, plan_stages
from keystone.runs.pipeline.foresight import Asked, AskedTopic, Foreseen, foresee
from keystone.runs.pipeline.job import Job, open_job
from keystone.runs.pipeline.manifest import describe_inputs
from keystone.runs.pipeline.stages.answer_cost import SENTENCE_WORDS
from keystone.runs.pipeline.stages.queries import (
    QUERIES_FILE,
    QUERY_METHODS,
    UnderstoodTopic,
    bound_queries,
    list_queries,
)
from keystone.runs.pipeline.stages.rerank import foresee_endpoints
from keystone.runs.pipeline.table import bind_stages, list_wanted
from keystone.runs.pipeline.values import Values
from keystone.runs.report.say import align_columns
from keystone.runs.wording import plural


@dataclass(frozen=True, slots=True)
class Foresight:
    """A run before it is made: its stages and their fate, and its calls by purpose, in the order of the stages.

    `reranker` is the cost of the servers of rerankers: requests, and the tokens of queries and passages, or None.
    """

    directory: str
    topics: int
    stages: tuple[tuple[Stage, Plan], ...]
    calls: tuple[Foreseen, ...]
    reranker: Foreseen | None
    prices: Prices | None
    budget: Budget | None
    models: tuple[Footprint, ...] = ()
    """The models that would run on this machine."""


def foresee_run(config: RunConfig, threads: int = 1, retry: bool = False) -> Foresight:
    """Foresee a run, or with `retry` one that asks again for replies that no step could use.

    Its index, topics and run directory are read. `UserError` as from `pipeline.run.run`.
    """
    job = open_job(config, threads)
    stages = tuple(plan_stages(job.directory, bind_stages(job), describe_inputs(job)["versions"], retry))
    left = {stage.name for stage, plan in stages if plan != "kept"}
    understood = None if "queries" in left else Values(job.directory, job).get(QUERIES_FILE)
    asks = any(stage.asks and stage.name in left for stage, _ in list_wanted(config))
    asked = Asked(job, _bound_topics(job, understood) if asks else [])
    wanted = [stage for stage, _ in list_wanted(job.config)] if job.config.model else []
    costs = (one for stage in wanted for topic in asked.topics for one in stage.foresee(asked, topic))
    foreseen = (one if isinstance(one, Foreseen) else foresee(one, asked.model) for one in costs)
    calls = [one for one in foreseen if one.stage in left and one.most.calls]
    reranker = foresee_endpoints(asked) if "rerank" in left else None
    model = config.model
    budget, prices = (model.budget, model.prices) if model else (None, None)
    order = [stage.name for stage, _ in stages]
    joined = sorted(join_calls(calls), key=lambda one: order.index(one.stage))
    local = tuple(measure_footprint(use, name) for use, name in dict.fromkeys(_list_models(job)))
    return Foresight(str(job.directory), len(job.topics), stages, tuple(joined), reranker, prices, budget, local)


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


def join_calls(calls: Sequence[Foreseen]) -> list[Foreseen]:
    """Join calls for the same stage and purpose, such as those of all topics."""
    joined: dict[tuple[str, str], Foreseen] = {}
    for one in calls:
        before = joined.get((one.stage, one.purpose))
        joined[one.stage, one.purpose] = (
            Foreseen(one.stage, one.purpose, before.most + one.most, before.likely + one.likely) if before else one
        )
    return list(joined.values())


NUMBERS = ("calls", "prompt_tokens", "completion_tokens")
"""The fields of `Usage` that can be foreseen."""


def _list_models(job: Job) -> Iterator[tuple[str, str]]:
    index = job.index
    embeddings = [("embeddings", index.embedding)] if index.embedding else []
    for name, system in job.config.make_systems().items():
        if isinstance(system, LateSystem):
            yield f"late interaction {name}", system.model
        if isinstance(system, DenseSystem) and system.vectors in index.vectors:
            embeddings.append((f"embeddings {system.vectors}", index.vectors[system.vectors].embedding))
        if isinstance(system, ImpactSystem) and system.impacts in index.impacts:
            yield f"impacts {system.impacts}", index.impacts[system.impacts].model
        if isinstance(system, PlaidSystem) and system.plaid in index.plaid:
            yield f"late interaction {name}", index.plaid[system.plaid].model
    yield from ((use, one.model) for use, one in embeddings if not one.url)
    yield from (
        ("reranker", one.model) for one in job.config.rerank.list_steps() if one.method == "model" and one.model
    )


def format_foresight(found: Foresight) -> Iterator[str]:
    """Format the stages with their fate, and a table of calls, tokens and cost by purpose."""
    yield f"{found.directory}: {plural(found.topics, 'topic')}; nothing is written, no model is asked"
    width = max(len(stage.name) for stage, _ in found.stages)
    for stage, plan in found.stages:
        yield f"{stage.name:{width}}  {plan}: {', '.join(stage.artifacts)}"
    if found.calls:
        yield ""
        assumed = f"without repairs, with four characters a token and {SENTENCE_WORDS} words a sentence"
        yield from format_calls(found.calls, found.prices, assumed)
    else:
        yield "the run needs no language model"
    if found.budget:
        yield format_budget(found.budget)
    if found.reranker:
        most = found.reranker.most
        yield f"reranker {found.reranker.purpose}: {most.calls:,} requests, {most.prompt_tokens:,} tokens at most"
    yield from _format_footprints(found.models)


def format_calls(calls: Sequence[Foreseen], prices: Prices | None, assumed: str) -> Iterator[str]:
    """Format a table of what calls can cost at most, and a line of what they likely cost, as far as `assumed` holds."""
    rows = [(one.stage, one.purpose, one.most) for one in calls]
    rows.append(("total", "", sum((one.most for one in calls), Usage())))
    head = ["stage", "purpose", "calls at most", "prompt tokens", "reply tokens", *(["dollars"] if prices else [])]
    lines = [head]
    for stage, purpose, usage in rows:
        dollars = [] if prices is None else [f"{compute_cost(usage, prices):,.2f}"]
        lines.append([stage, purpose, *(f"{getattr(usage, name):,}" for name in NUMBERS), *dollars])
    yield from align_columns(lines, left=(0, 1))
    likely = sum((one.likely for one in calls), Usage())
    cost = "" if prices is None else f", ${compute_cost(likely, prices):,.2f}"
    tokens = f"{likely.prompt_tokens:,} tokens of prompts and {likely.completion_tokens:,} of replies"
    yield f"{assumed}: {likely.calls:,} calls, {tokens}{cost}"


def format_budget(budget: Budget) -> str:
    """Format the limits of a budget."""
    limits = ", ".join(f"{key} {value:,}" for key, value in budget.model_dump(exclude_none=True).items())
    return f"the budget allows at most: {limits}"


def _format_footprints(found: Sequence[Footprint]) -> Iterator[str]:
    """Format what each model takes, one a line."""
    for one in found:
        place = "here" if one.folder else "would be fetched"
        memory = "" if one.memory is None else f", {one.memory / 1e6:,.0f} MB of weights in memory"
        disk = "size not known" if one.disk is None else f"{one.disk / 1e6:,.0f} MB on disk"
        yield f"model on this machine, {one.use}: {one.model}: {place}, {disk}{memory}"


def list_foresight(found: Foresight) -> dict[str, Any]:
    """List the same facts as values of JSON."""
    return {
        "directory": found.directory,
        "topics": found.topics,
        "stages": [{"name": one.name, "plan": plan, "artifacts": one.artifacts} for one, plan in found.stages],
        **list_calls(found.calls, found.prices),
        "reranker": found.reranker
        and {"name": found.reranker.purpose, "requests": found.reranker.most.calls}
        | {"tokens": found.reranker.most.prompt_tokens},
        "budget": found.budget and found.budget.model_dump(),
        "models": [asdict(one) for one in found.models],
    }


def list_calls(calls: Sequence[Foreseen], prices: Prices | None) -> dict[str, Any]:
    """List what calls can cost, each and in total, as values of JSON."""

    def count(usage: Usage) -> dict[str, float]:
        cost = {} if prices is None else {"cost": compute_cost(usage, prices)}
        return {name: getattr(usage, name) for name in NUMBERS} | cost

    return {
        "calls": [
            {"stage": one.stage, "purpose": one.purpose, "most": count(one.most), "likely": count(one.likely)}
            for one in calls
        ],
        "total": {
            "most": count(sum((one.most for one in calls), Usage())),
            "likely": count(sum((one.likely for one in calls), Usage())),
        },
    }
