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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import orjson

from indexing.errors import UserError
from indexing.io.files import digest, remove, sha256, written
from indexing.types import Progress, silent

T = TypeVar("T")

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Artifact(Generic[T]):
    """A file of the run directory, and how its value is read and written: `read(path)`, `write(path, value)`.

    Reading a file gives the value that was written.
    """

    name: str
    read: Callable[[Path], T]
    write: Callable[[Path, T], None]


class Values:
    """The artifacts of one run directory; a value that was read or made is kept in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._kept: dict[str, Any] = {}

    def get(self, artifact: Artifact[T]) -> T:
        """The value of an artifact whose file is there."""
        if artifact.name not in self._kept:
            self._kept[artifact.name] = artifact.read(self.directory / artifact.name)
        value: T = self._kept[artifact.name]
        return value

    def put(self, artifact: Artifact[T], value: T) -> None:
        """Write the value of an artifact, and keep it."""
        artifact.write(self.directory / artifact.name, value)
        self._kept[artifact.name] = value


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of a run: the artifacts that it makes, all at once, from others and its part of the configuration.

    `make` is given the values of `reads`, and returns those of `makes`, both in order; `settings` are all else that its
    result depends on, as JSON has it.
    """

    name: str
    makes: tuple[Artifact[Any], ...]
    reads: tuple[Artifact[Any], ...]
    settings: Any
    make: Callable[..., Sequence[Any]]
    wanted: bool = True
    """Whether the configuration asks for it."""

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The names of the artifacts that it makes."""
        return tuple(artifact.name for artifact in self.makes)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the artifacts that it reads."""
        return tuple(artifact.name for artifact in self.reads)


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told of a run: `announce` of each stage and whether it is reused, `progress` of the work within one."""

    announce: Callable[[Stage, bool], None] = field(default=lambda _stage, _reused: None)
    progress: Progress = silent


UNWATCHED = Watch()
"""Nobody is told."""


def perform_stages(
    values: Values,
    stages: Sequence[Stage],
    description: dict[str, Any],
    watch: Watch = UNWATCHED,
    conclude: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Bring a run directory to what its stages describe, making only what is missing.

    `description` goes into the manifest beside the artifacts, and its `versions` into every key; `conclude` says
    what else goes there in the end. A failing stage leaves all earlier artifacts in place. Nothing is written where
    nothing is missing. `UserError` for a folder that holds files but was never a run directory.
    """
    directory = values.directory
    if not (directory / MANIFEST).exists() and any(not _is_partial(path) for path in directory.iterdir()):
        raise UserError(f"{directory}: holds files but no {MANIFEST}: not a run directory: change out or run_id")
    keys = _compute_keys(stages, description["versions"])
    listed = _read_listed(directory)
    kept = {name: entry for name, entry in listed.items() if _is_kept(directory / name, entry, keys, name)}
    for path in directory.iterdir():
        ours = path.name in keys or path.name in listed or _is_partial(path)
        if ours and path.name not in kept:
            remove(path)
    for stage in stages:
        inputs = {name: kept[name]["sha256"] for name in stage.inputs}
        reused = all(name in kept and kept[name].get("inputs") == inputs for name in stage.artifacts)
        watch.announce(stage, reused)
        if not reused:
            kept = {name: entry for name, entry in kept.items() if name not in stage.artifacts}
            _write_manifest(directory, description, kept)
            for name in stage.artifacts:
                remove(directory / name)
            with watch.progress(stage.name.capitalize(), None):
                _make(stage, values)
            for name in stage.artifacts:
                kept[name] = {"key": keys[name], "sha256": sha256(directory / name), "inputs": inputs}
    _write_manifest(directory, {**description, **conclude()}, {name: kept[name] for name in keys})


def _make(stage: Stage, values: Values) -> None:
    """Make the artifacts of a stage."""
    made = stage.make(*(values.get(artifact) for artifact in stage.reads))
    for artifact, value in zip(stage.makes, made, strict=True):
        values.put(artifact, value)


def _is_partial(path: Path) -> bool:
    return path.name.endswith(".partial")


def _compute_keys(stages: Sequence[Stage], versions: Any) -> dict[str, str]:
    keys: dict[str, str] = {}
    for stage in stages:
        key = digest([stage.name, stage.settings, versions, [keys[name] for name in stage.inputs]])
        keys.update(dict.fromkeys(stage.artifacts, key))
    return keys


def _read_listed(directory: Path) -> dict[str, dict[str, Any]]:
    try:
        artifacts = orjson.loads((directory / MANIFEST).read_bytes())["artifacts"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return artifacts if isinstance(artifacts, dict) else {}


def _is_kept(path: Path, entry: Any, keys: dict[str, str], name: str) -> bool:
    known = isinstance(entry, dict) and name in keys and entry.get("key") == keys[name]
    return known and path.is_file() and sha256(path) == entry.get("sha256")


def _write_manifest(directory: Path, description: dict[str, Any], artifacts: dict[str, dict[str, Any]]) -> None:
    """Write the manifest unless it says just that, so that a finished run needs no place that can be written."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    content = orjson.dumps({**description, "artifacts": artifacts}, option=options)
    with suppress(OSError):
        if (directory / MANIFEST).read_bytes() == content:
            return
    with written(directory / MANIFEST) as out:
        out.write(content)
