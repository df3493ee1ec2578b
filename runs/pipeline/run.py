"""A run from its configuration to its files: the stages one after another, over all topics."""

from collections.abc import Callable, Sequence
from pathlib import Path

from keystone.indexing.io.writing import lock_folder
from keystone.indexing.types import Progress, silent
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.directory import Stage, Watch, perform_stages
from keystone.runs.pipeline.job import open_job
from keystone.runs.pipeline.manifest import describe_inputs, describe_outcome
from keystone.runs.pipeline.model_runner import StepCount, open_model_runner
from keystone.runs.pipeline.table import bind_stages
from keystone.runs.pipeline.values import Values


def run(
    config: RunConfig,
    threads: int = 1,
    progress: Progress = silent,
    announce: Callable[[Stage, bool], None] = lambda _stage, _reused: None,
    lenders: Sequence[Path] = (),
    retry: bool = False,
) -> Path:
    """Make a run, or finish one that was interrupted; returns its directory.

    Artifacts that the run directories `lenders` have with the same inputs are linked, not made again. If `retry` is
    true, the model is asked again for replies that no reader could use, and the files from them are made anew.

    `UserError` if the configuration names a missing file, or if another process makes the same run.
    """
    job = open_job(config, threads, progress)
    values, steps = Values(job.directory, job, lenders), StepCount()
    watch = Watch(announce, lambda stage, total: progress(f"{config.run_id}: {stage}", total), steps.take)
    with lock_folder(job.directory), open_model_runner(config, job.directory, steps, retry) as run_with_model:
        stages = bind_stages(job, run_with_model)
        perform_stages(values, stages, describe_inputs(job), watch, lambda: describe_outcome(values), retry)
    return job.directory
