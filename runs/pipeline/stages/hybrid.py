"""The hybrid ranking of each query: the rankings of the systems, fused (paper, section 2.4)."""

from typing import Any

from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.ranking.fuse_narratives import fuse_each_query
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, rank_queries_in
from keystone.runs.pipeline.stages.search import list_system_files

HYBRID_FILE = rank_queries_in(file_names.HYBRID)


def fuse_systems(work: Work) -> None:
    """Fuse the rankings of the systems into the hybrid ranking of each query."""
    config = work.job.config
    systems = zip(config.list_systems(), list_system_files(config), strict=True)
    rankings = {system: work.values.get(file) for system, file in systems}
    work.values.put(HYBRID_FILE, fuse_each_query(config, rankings))


def _make_key(job: Job, _: Before) -> Any:
    queries = job.config.queries.model_dump(mode="json")
    passages = [queries["passages"], queries["passage_weight"]]
    return [job.identity, job.config.describe_first_stage(), passages]


STAGE = StageKind(
    name="hybrid",
    makes=lambda _: (HYBRID_FILE,),
    reads=lambda before: (QUERIES_FILE, *list_system_files(before.config)),
    key=_make_key,
    work=fuse_systems,
    ranks_queries=lambda _: HYBRID_FILE,
    describe=lambda before: [
        {"name": "hybrid", **before.config.describe_first_stage(), "interpolates": before.config.list_systems()}
    ],
)
