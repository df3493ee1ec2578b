"""The ranking of a narrative after the reranker, for `run`, `answer` and the Python API alike."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

import numpy as np

from keystone.generation.context.topic import read_context
from keystone.generation.llm.model import Model
from keystone.generation.queries.compose import make_narrative_query
from keystone.generation.rerank.candidates import Candidates, Means, Rerank, Reranked
from keystone.generation.rerank.open import open_reranker
from keystone.retrieval.types import Rankings, Topic, offsets_of
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.job import Job


def open_configured_reranker(config: RunConfig, model: Model | None) -> AbstractAsyncContextManager[Rerank | None]:
    """Open the reranker of a configuration, or None if it has none."""
    settings, window = config.rerank, config.model.window if config.model else 0
    return nullcontext() if settings.method is None else open_reranker(settings, Means(config.out, model, window))


def open_job_reranker(job: Job, model: Model | None) -> AbstractAsyncContextManager[Rerank | None]:
    """Open the reranker of a job, or None if it has none."""
    return open_configured_reranker(job.config, model)


async def rerank_rows(job: Job, rerank: Rerank, topic: Topic, rows: Sequence[int]) -> tuple[list[int], Reranked]:
    """Rank the first `rerank.depth` documents of a topic again; returns all rows of its ranking, best first."""
    first = rows[: job.config.rerank.depth]
    context = await asyncio.to_thread(read_context, job.sources, first, [make_narrative_query(topic)])
    found = await rerank(Candidates(topic.id, topic.narrative, context))
    return [*(first[place] for place in found.order), *rows[len(first) :]], found


def rank_by_place(topic_ids: Sequence[str], rows: Sequence[Sequence[int]]) -> Rankings:
    """Make rankings from the rows of each topic, best first. A score is the number of documents from it to the end."""
    return Rankings(
        tuple(topic_ids),
        offsets_of([len(own) for own in rows]),
        np.array([row for own in rows for row in own], dtype=np.int32),
        np.array([len(own) - place for own in rows for place in range(len(own))], dtype=np.float32),
    )
