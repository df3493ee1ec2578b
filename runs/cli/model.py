"""The model of a command: its configuration, its runner with a progress bar, and a check of what repeats ask of it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.model_runner import RunWithModel, open_model_runner
from keystone.runs.report.terminal import progress_bars


def read_model_settings(config: Path | None, overrides: Sequence[str] | None) -> RunConfig:
    """Read the configuration for its model. Without a file, the paths that a run needs lead nowhere."""
    unread = ["run_id=evaluate", f"index={os.devnull}", f"topics={os.devnull}"] if config is None else []
    return read_config(config, [*unread, *(overrides or [])])


def refuse_fixed_samples(config: RunConfig, repeats: int) -> None:
    """Raise `UserError` if the model is to be asked several times with settings that fix its replies."""
    if repeats > 1 and config.model and (fixed := {"temperature", "seed"} & config.model.extra.keys()):
        raise UserError(f"model.extra.{min(fixed)}: expected none with --repeats, whose replies are samples")


@contextmanager
def open_runner(config: RunConfig, step: str, quiet: bool, folder: Path | None = None) -> Iterator[RunWithModel]:
    """Open a runner of the configuration's model, with a progress bar of this step. `folder` keeps the cost."""
    with progress_bars(quiet) as progress, progress(step, None), open_model_runner(config, folder) as run_with_model:
        yield run_with_model
