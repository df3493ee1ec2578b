"""The rankings of narratives that a run makes, one after the other."""

from collections.abc import Iterator
from typing import Literal

from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.file_names import GRADED, KEYSTONE, NARRATIVE, RERANKED

RankingStep = Literal["fusion", "rerank", "grades"]


def list_narrative_rankings(config: RunConfig) -> Iterator[tuple[RankingStep, str]]:
    """List the steps that rank each narrative, in their order, each with the file of its ranking."""
    yield "fusion", NARRATIVE
    if config.reranks_after("fusion"):
        yield "rerank", RERANKED
    if config.grading.method is not None:
        yield "grades", GRADED if config.reranks_after("grades") else KEYSTONE
    if config.reranks_after("grades"):
        yield "rerank", KEYSTONE
