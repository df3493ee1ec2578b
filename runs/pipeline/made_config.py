"""The configuration with which a run directory was made."""

from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path

import orjson

from keystone.indexing.errors import UserError
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.file_names import CONFIG

NO_PACKAGES = ("anserini", "faiss")
"""The names among the versions of a manifest that are no names of installed packages."""


def read_run_config(directory: Path) -> RunConfig:
    """Read the configuration of a run directory. Its `UserError` names the packages of the run that are missing here.

    Without the package, a row that it adds has an unknown name.
    """
    try:
        return read_config(directory / CONFIG)
    except UserError as error:
        lines = [str(error)]
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            from keystone.runs.pipeline.directory import MANIFEST  # which loads packages that take long

            made_by = orjson.loads((directory / MANIFEST).read_bytes())["versions"]
            missing = [name for name in made_by if name not in NO_PACKAGES and not any(distributions(name=name))]
            lines += [f"the run was made with {name} {made_by[name]}, which is not installed here" for name in missing]
        raise UserError("\n".join(lines)) from error
