"""The ranking of each narrative: the rankings of its queries, fused."""

from collections.abc import Iterator
from typing import Any

from keystone.runs.config.run_config import RunConfig
from keystone.runs.config.sections import ChosenDepth
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.ranking.fuse_narratives import fuse_each_narrative
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages.hybrid import HYBRID_FILE
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, get_queries
from keystone.runs.pipeline.values import rank_topics_in

NARRATIVE_FILE = rank_topics_in(file_names.NARRATIVE)


def fuse_queries(work: Work) -> None:
    """Fuse the hybrid rankings of each narrative's queries into its ranking."""
    job, values = work.job, work.values
    ranking = fuse_each_narrative(job.config, job.topics, get_queries(values), values.get(HYBRID_FILE))
    values.put(NARRATIVE_FILE, ranking)


def describe_fusion(config: RunConfig) -> dict[str, Any]:
    """Describe the fusion for the key of a stage. How submitted rows are chosen changes no ranking."""
    choice = None if config.fusion.choice is None else ChosenDepth()
    return config.fusion.model_copy(update={"choice": choice}).model_dump(mode="json")


def _make_key(job: Job, _: Before) -> Any:
    queries = job.config.model_dump(mode="json", include={"queries"})["queries"]
    return [job.identity, describe_fusion(job.config), queries]


def _describe(before: Before) -> Iterator[dict[str, Any]]:
    fusion = before.config.fusion
    depths = {"depths": fusion.depths} if fusion.depths else {}
    yield {
        "name": "narrative", "method": fusion.method, "depth": fusion.depth, **depths, "interpolates": ["hybrid"],
    }  # fmt: skip


STAGE = StageKind(
    name="narrative",
    makes=lambda _: (NARRATIVE_FILE,),
    reads=lambda _: (QUERIES_FILE, HYBRID_FILE),
    key=_make_key,
    work=fuse_queries,
    ranks_narratives=lambda _: NARRATIVE_FILE,
    describe=_describe,
)
