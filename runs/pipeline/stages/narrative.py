"""The ranking of each narrative: the rankings of its queries, fused."""

from collections.abc import Iterator
from typing import Any

from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.ranking.fuse import fuse_each_narrative
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


def _make_key(job: Job, _: Before) -> Any:
    plain = job.config.model_dump(mode="json")
    return [job.identity, plain["fusion"], plain["queries"]]


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
