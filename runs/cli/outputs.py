"""The check, made by all commands before they begin, that no output is an input."""

import os
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from keystone.indexing.errors import UserError
from keystone.runs.trec.collections import find_folder

if TYPE_CHECKING:
    from keystone.runs.config.run_config import RunConfig

NOT_PATHS = ("ir_datasets:", "pyserini:", "rest:", "opensearch:")
"""Beginnings of corpus names that are no paths."""


def check_outputs(inputs: Iterable[str | Path | None], outputs: Mapping[str, Path | None]) -> None:
    """Raise `UserError` if an output is an input, lies in one, or holds one.

    `outputs` maps names of options to paths. Links, hard links and other spellings of a path count as the same file.
    """
    paths = [Path(name) for name in inputs if name is not None and not str(name).startswith(NOT_PATHS)]
    read = [folder[0] if (folder := find_folder(path)) else path for path in paths]
    written = [(option, out) for option, out in outputs.items() if out is not None]
    for (option, out), found in product(written, read):
        if overlap := _describe_overlap(Path(os.path.realpath(found)), Path(os.path.realpath(out))):
            raise UserError(f"{option} {out}: {overlap} {found}, which the command reads; expected another place")


def check_run_outputs(
    config: "RunConfig | None", read: Iterable[Path | None], outputs: Mapping[str, Path | None]
) -> None:
    """Check the outputs of a command that reads the inputs of a configuration, if it has one, besides the files `read`.

    A run may read the configuration in its own run directory. `UserError` as from `check_outputs`.
    """
    if config is None:
        check_outputs(read, outputs)
        return
    from keystone.runs.pipeline.file_names import CONFIG

    model, kept = config.model, os.path.realpath(config.out / config.run_id / CONFIG)
    inputs = [path for path in read if path is not None and os.path.realpath(path) != kept]
    recorded = (model.replies, model.key_file) if model else ()
    cache = {"model.cache": model.cache if model else None}
    check_outputs([*inputs, config.index, config.topics, *config.retrieval.runs, *recorded], {**outputs, **cache})
    check_outputs([model.replies_in(config.out)] if model else [], outputs)


def _describe_overlap(found: Path, out: Path) -> str:
    try:
        same = out.samefile(found)
    except OSError:  # one of them does not exist yet
        same = out == found
    if same:
        return "is"
    if found in out.parents:
        return "lies in"
    return "holds" if out in found.parents else ""
