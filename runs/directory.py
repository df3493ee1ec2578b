"""The run directory: artifacts of one configuration, each with the key of what it was made from.

`manifest.json` says for every artifact its key and the SHA-256 of its bytes. An artifact whose key and bytes
still agree is reused; any other is removed before the run begins, so a directory never mixes configurations.
The manifest holds nothing that changes between two equal runs, no time of day in particular.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from indexing.errors import UserError
from indexing.files import digest, sha256, written
from indexing.types import Progress, silent

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of a run: the artifacts it writes, all at once, from its inputs and its part of the configuration."""

    name: str
    artifacts: tuple[str, ...]
    inputs: tuple[str, ...]
    settings: Any
    make: Callable[[], None]


def perform(
    directory: Path,
    stages: Sequence[Stage],
    description: dict[str, Any],
    announce: Callable[[Stage, bool], None],
    progress: Progress = silent,
    conclude: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Bring a run directory to what its stages describe, making only what is missing.

    `description` goes into the manifest beside the artifacts, and its `versions` into every key; `conclude` says
    what else goes there in the end; `announce` is told of each stage and whether it is reused. A failing stage
    leaves all earlier artifacts in place. `UserError` for a folder that holds files but was never a run directory.
    """
    if not (directory / MANIFEST).exists() and any(not _is_partial(path) for path in directory.iterdir()):
        raise UserError(f"{directory}: holds files but no {MANIFEST}: not a run directory: change out or run_id")
    keys = _keys(stages, description["versions"])
    listed = _listed(directory)
    valid = {name: entry for name, entry in listed.items() if _agrees(directory / name, entry, keys, name)}
    for path in directory.iterdir():
        ours = path.name in keys or path.name in listed or _is_partial(path)
        if ours and path.name not in valid:
            path.unlink()
    for stage in stages:
        reused = all(name in valid for name in stage.artifacts)
        announce(stage, reused)
        if not reused:
            _write_manifest(directory, description, valid)
            with progress(stage.name.capitalize(), None):
                stage.make()
            for name in stage.artifacts:
                valid[name] = {"key": keys[name], "sha256": sha256(directory / name)}
    _write_manifest(directory, {**description, **conclude()}, {name: valid[name] for name in keys})


def _is_partial(path: Path) -> bool:
    return path.name.endswith(".partial")


def _keys(stages: Sequence[Stage], versions: Any) -> dict[str, str]:
    keys: dict[str, str] = {}
    for stage in stages:
        key = digest([stage.name, stage.settings, versions, [keys[name] for name in stage.inputs]])
        keys.update(dict.fromkeys(stage.artifacts, key))
    return keys


def _listed(directory: Path) -> dict[str, dict[str, str]]:
    try:
        artifacts = orjson.loads((directory / MANIFEST).read_bytes())["artifacts"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return artifacts if isinstance(artifacts, dict) else {}


def _agrees(path: Path, entry: Any, keys: dict[str, str], name: str) -> bool:
    known = isinstance(entry, dict) and name in keys and entry.get("key") == keys[name]
    return known and path.is_file() and sha256(path) == entry.get("sha256")


def _write_manifest(directory: Path, description: dict[str, Any], artifacts: dict[str, dict[str, str]]) -> None:
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    with written(directory / MANIFEST) as out:
        out.write(orjson.dumps({**description, "artifacts": artifacts}, option=options))
