"""The table of a run's stages, in order. Whatever lists, checks, foresees, explains or reports stages reads it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.directory import Stage
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.made_config import read_run_config
from keystone.runs.pipeline.model_runner import RunWithModel
from keystone.runs.pipeline.searches import ALONE, Means
from keystone.runs.pipeline.stage import Before, StageKind, Watch, Work, tell_nobody
from keystone.runs.pipeline.stages import (
    answer,
    config,
    gather,
    grades,
    ground,
    hybrid,
    narrative,
    queries,
    rerank,
    research,
    rounds,
    search,
    segments,
    submission,
)
from keystone.runs.pipeline.values import Values

STAGES: Sequence[StageKind] = (
    config.STAGE,
    queries.STAGE,
    search.STAGE,
    hybrid.STAGE,
    narrative.STAGE,
    rerank.AFTER_FUSION,
    grades.STAGE,
    rounds.STAGE,
    rerank.AFTER_GRADES,
    segments.STAGE,
    gather.STAGE,
    research.STAGE,
    segments.AFTER_RESEARCH,
    answer.STAGE,
    submission.STAGE,
    ground.STAGE,
)
"""All stages that a run may have, in their order."""
NARRATIVE_STAGES = (queries.STAGE, search.STAGE, hybrid.STAGE, narrative.STAGE)
"""The stages up to the first ranking of the narratives."""


def list_wanted(config: RunConfig) -> Iterator[tuple[StageKind, Before]]:
    """List the stages that a configuration needs, in order, each with the rankings before it."""
    before = Before(config)
    for stage in STAGES:
        if stage.wanted(config):
            yield stage, before
            before = _follow(stage, before)


def _follow(stage: StageKind, before: Before) -> Before:
    """Return the configuration after a stage, with the rankings that it makes."""
    queries = [stage.ranks_queries(before.config)] if stage.ranks_queries else []
    narratives = [stage.ranks_narratives(before.config)] if stage.ranks_narratives else []
    return Before(before.config, (*before.query_rankings, *queries), (*before.narrative_rankings, *narratives))


def list_rankings(config: RunConfig) -> Before:
    """List the rankings that the stages of a configuration make."""
    *_, (stage, before) = list_wanted(config)
    return _follow(stage, before)


def list_steps(config: RunConfig) -> list[Mapping[str, Any]]:
    """List the steps of a configuration's ranking as the metadata describe them, each with its name."""
    return [step for stage, before in list_wanted(config) for step in stage.describe(before)]


def list_files(config: RunConfig, notes: bool = True) -> list[str]:
    """List the names of all files that a finished run of this configuration has, with or without notes."""
    return [
        artifact.name
        for stage, before in list_wanted(config)
        for artifact in stage.makes(before)
        if notes or artifact not in stage.notes(before)
    ]


def bind_stages(job: Job, run_with_model: RunWithModel | None = None) -> list[Stage]:
    """Bind the stages that a job needs to its settings. Without `run_with_model`, they can only be planned."""

    def make(kind: StageKind, before: Before, values: Values) -> None:
        assert run_with_model is not None
        kind.work(Work(values, run_with_model, before))

    return [
        Stage(kind.name, kind.makes(before), kind.reads(before), kind.key(job, before), partial(make, kind, before))
        for kind, before in list_wanted(job.config)
    ]


def perform(
    values: Values,
    run_with_model: RunWithModel,
    is_needed: Callable[[StageKind], bool],
    means: Means = ALONE,
    watch: Watch = tell_nobody,
) -> None:
    """Perform the stages that a job's configuration wants and that are needed, in their order."""
    for kind, before in list_wanted(values.job.config):
        if is_needed(kind):
            kind.work(Work(values, run_with_model, before, means, watch))


def needs(job: Job, kind: StageKind, *, answers: bool = True, ranking: bool = False) -> bool:
    """Tell whether the answers of a job need a stage, or whether the last ranking of its narratives does."""
    ranks = kind in NARRATIVE_STAGES or kind.ranks_narratives is not None
    return (answers and kind.answers_need(job)) or (ranking and ranks)


def list_records(values: Values, is_needed: Callable[[StageKind], bool] = lambda _: True) -> list[Any]:
    """List the records of a finished run's needed stages that tell where the model gave no usable reply."""
    wanted = [own for own in list_wanted(values.job.config) if is_needed(own[0])]
    return [record for kind, before in wanted for file in kind.records(before) for record in values.get(file)]


def find_ranking(path: Path) -> Path:
    """Find the run file that a path names: the last ranking of a run directory, or else the path itself."""
    return find_last_ranking(path) if (path / file_names.CONFIG).is_file() else path


def find_last_ranking(directory: Path, config: RunConfig | None = None) -> Path:
    """Find the last ranking of documents that a run has made so far, whose first one is that of its narratives.

    A folder without a configuration has at most that first one.
    """
    if not (directory / file_names.CONFIG).is_file():
        return directory / file_names.NARRATIVE
    config = read_run_config(directory) if config is None else config
    files = list_rankings(config).narrative_rankings
    made = (file for file in reversed(files) if (directory / file.name).exists())
    return directory / next(made, files[0]).name
