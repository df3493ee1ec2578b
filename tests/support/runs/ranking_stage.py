"""A small stage of a run that ranks, for tests of whatever follows the table of stages."""

from typing import Any

from keystone.runs.pipeline.stage import StageKind, Work
from keystone.runs.pipeline.values import rank_topics_in


def make_ranking_stage(name: str, most: int, **more: Any) -> StageKind:
    """Make a stage that ranks the first `most` documents of each narrative alone, in `NAME.trec`."""
    file = rank_topics_in(f"{name}.trec")

    def work(work: Work) -> None:
        work.values.put(file, work.values.get(work.before.narrative_ranking).top(most))

    return StageKind(
        name=name,
        makes=lambda _: (file,),
        reads=lambda before: (before.narrative_ranking,),
        key=lambda job, _: [job.identity, most],
        work=work,
        ranks_narratives=lambda _: file,
        **more,
    )
