"""What a command writes is never what it reads: the one check, made by every command before it begins."""

import os
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from indexing.errors import UserError

if TYPE_CHECKING:
    from runs.config.run_config import RunConfig

NOT_PATHS = ("ir_datasets:", "pyserini:", "rest:", "opensearch:")
"""How names of corpora begin that are no files."""


def check_outputs(inputs: Iterable[str | Path | None], outputs: Mapping[str, Path | None]) -> None:
    """`UserError` where an output, by the name of its option, is an input, lies in one, or is a folder that holds one.

    A file is known under each of its names: through links, hard links and other spellings of its path.
    """
    read = [Path(name) for name in inputs if name is not None and not str(name).startswith(NOT_PATHS)]
    written = [(option, out) for option, out in outputs.items() if out is not None]
    for (option, out), found in product(written, read):
        if fault := _fault(Path(os.path.realpath(found)), Path(os.path.realpath(out))):
            raise UserError(f"{option} {out}: {fault} {found}, which the command reads; expected another place")


def check_run(config: "RunConfig", read: Iterable[Path | None], outputs: Mapping[str, Path | None]) -> None:
    """`check_outputs` of a command that reads what a configuration names, besides the files `read`.

    The configuration that a run directory keeps may be the one that the run is made from again.
    """
    from runs.pipeline.artifacts import CONFIG

    model, kept = config.model, os.path.realpath(config.out / config.run_id / CONFIG)
    inputs = [path for path in read if path is not None and os.path.realpath(path) != kept]
    named = (model.replies, model.key_file) if model else ()
    cache = {"model.cache": model.cache if model else None}
    check_outputs([*inputs, config.index, config.topics, *named], {**outputs, **cache})


def _fault(found: Path, out: Path) -> str:
    try:
        same = out.samefile(found)
    except OSError:  # one of them is not there yet
        same = out == found
    if same:
        return "is"
    if found in out.parents:
        return "lies in"
    return "holds" if out in found.parents else ""
