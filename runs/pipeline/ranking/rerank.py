"""The ranking of a narrative after the reranker, for `run`, `answer` and the Python API alike."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from keystone.generation.context.topic import read_context
from keystone.generation.llm.model import Model
from keystone.generation.queries.compose import make_narrative_query
from keystone.generation.rerank.candidates import Candidates, Means, Rerank, Reranked
from keystone.generation.rerank.open import open_reranker
from keystone.retrieval.types import Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.job import Job


def open_configured_reranker(
    config: RunConfig, model: Model | None, threads: int = 1
) -> AbstractAsyncContextManager[Rerank | None]:
    """Open the reranker of a configuration, or None if it has none."""
    settings, window = config.rerank, config.model.window if config.model else 0
    means = Means(config.out, model, window, threads)
    return nullcontext() if settings.method is None else open_reranker(settings, means)


def open_job_reranker(job: Job, model: Model | None) -> AbstractAsyncContextManager[Rerank | None]:
    """Open the reranker of a job, or None if it has none."""
    return open_configured_reranker(job.config, model, job.threads)


async def rerank_rows(job: Job, rerank: Rerank, topic: Topic, rows: Sequence[int]) -> tuple[list[int], Reranked]:
    """Rank the first `rerank.depth` documents of a topic again; returns all rows of its ranking, best first."""
    first = rows[: job.config.rerank.depth]
    context = await asyncio.to_thread(read_context, job.sources, first, [make_narrative_query(topic)])
    found = await rerank(Candidates(topic.id, topic.narrative, context))
    return [*(first[place] for place in found.order), *rows[len(first) :]], found
