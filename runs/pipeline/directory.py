"""The run directory: artifacts of one configuration, each with a record of what it was made from.

`manifest.json` says for every artifact its key, which changes with the settings of its stage and of all before it, the
SHA-256 of its bytes, and those of the artifacts that it was made from. An artifact of another key or of other bytes, as
after an edit, is removed before the run begins, so a directory never mixes configurations. A stage is made again where
an artifact of it is missing, or was made from other bytes than its inputs have now. One that gives the same bytes again
leaves the later ones as they are. The manifest holds nothing that changes between two equal runs, no time of day in
particular.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from indexing.errors import UserError
from indexing.io.json_values import digest
from indexing.io.reading import hash_file
from indexing.io.writing import remove, write_whole
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
    leaves all earlier artifacts in place. Nothing is written where nothing is missing. `UserError` for a folder that
    holds files but was never a run directory.
    """
    if not (directory / MANIFEST).exists() and any(not _is_partial(path) for path in directory.iterdir()):
        raise UserError(f"{directory}: holds files but no {MANIFEST}: not a run directory: change out or run_id")
    keys = _keys(stages, description["versions"])
    listed = _listed(directory)
    kept = {name: entry for name, entry in listed.items() if _agrees(directory / name, entry, keys, name)}
    for path in directory.iterdir():
        ours = path.name in keys or path.name in listed or _is_partial(path)
        if ours and path.name not in kept:
            remove(path)
    for stage in stages:
        inputs = {name: kept[name]["sha256"] for name in stage.inputs}
        reused = all(name in kept and kept[name].get("inputs") == inputs for name in stage.artifacts)
        announce(stage, reused)
        if not reused:
            kept = {name: entry for name, entry in kept.items() if name not in stage.artifacts}
            _write_manifest(directory, description, kept)
            for name in stage.artifacts:
                remove(directory / name)
            with progress(stage.name.capitalize(), None):
                stage.make()
            for name in stage.artifacts:
                kept[name] = {"key": keys[name], "sha256": hash_file(directory / name), "inputs": inputs}
    _write_manifest(directory, {**description, **conclude()}, {name: kept[name] for name in keys})


def _is_partial(path: Path) -> bool:
    return path.name.endswith(".partial")


def _keys(stages: Sequence[Stage], versions: Any) -> dict[str, str]:
    keys: dict[str, str] = {}
    for stage in stages:
        key = digest([stage.name, stage.settings, versions, [keys[name] for name in stage.inputs]])
        keys.update(dict.fromkeys(stage.artifacts, key))
    return keys


def _listed(directory: Path) -> dict[str, dict[str, Any]]:
    try:
        artifacts = orjson.loads((directory / MANIFEST).read_bytes())["artifacts"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return artifacts if isinstance(artifacts, dict) else {}


def _agrees(path: Path, entry: Any, keys: dict[str, str], name: str) -> bool:
    known = isinstance(entry, dict) and name in keys and entry.get("key") == keys[name]
    return known and path.is_file() and hash_file(path) == entry.get("sha256")


def _write_manifest(directory: Path, description: dict[str, Any], artifacts: dict[str, dict[str, Any]]) -> None:
    """Write the manifest unless it says just that, so that a finished run needs no place that can be written."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    content = orjson.dumps({**description, "artifacts": artifacts}, option=options)
    with suppress(OSError):
        if (directory / MANIFEST).read_bytes() == content:
            return
    with write_whole(directory / MANIFEST) as out:
        out.write(content)
