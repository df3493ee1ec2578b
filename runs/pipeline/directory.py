"""The run directory: the artifacts of one configuration, each with a record of its inputs.

`manifest.json` has three entries for every artifact: its key, the SHA-256 of its bytes, and the SHA-256 of each of its
inputs. The key changes with the settings of its stage and of all stages before it.

If an artifact has another key, or other bytes (after an edit), it is removed before the run begins. So a directory
never mixes configurations. A stage is made again if one of its artifacts is missing, or if its inputs have other bytes
now. If it gives the same bytes again, the later stages stay as they are. The manifest of two equal runs is the same; it
holds no time of day.

A run directory may borrow from others: a missing artifact that another one has with the same key is linked, not made.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.reading import hash_file
from keystone.indexing.io.writing import link_whole, remove, write_whole
from keystone.indexing.types import Progress, silent
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.values import Artifact, Values

MANIFEST = file_names.MANIFEST
"""The file that describes a run and its artifacts."""
NARRATIVES = "narratives"
"""The key of the manifest under which each narrative has a line."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of a run: it makes its artifacts together, from other artifacts and its part of the configuration.

    `make` takes the values that it needs from those of the run, and puts those of `makes`. `settings` hold everything
    else that the result depends on, as values of JSON.
    """

    name: str
    makes: tuple[Artifact[Any], ...]
    reads: tuple[Artifact[Any], ...]
    settings: Any
    make: Callable[[Values], None]

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The names of the artifacts that the stage makes."""
        return tuple(artifact.name for artifact in self.makes)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the artifacts that the stage reads."""
        return tuple(artifact.name for artifact in self.reads)


@dataclass(frozen=True, slots=True)
class Watch:
    """The observers of a run.

    `announce` gets each stage before it is made, and whether it is reused. `progress` follows the making of each stage.
    `take_facts` returns facts about the making of a stage, for the manifest.
    """

    announce: Callable[[Stage, bool], None] = field(default=lambda _stage, _reused: None)
    progress: Progress = silent
    take_facts: Callable[[], Mapping[str, Any]] = dict


UNWATCHED = Watch()
"""No observers."""

Plan = Literal["kept", "made", "made if an input changes"]
"""The fate of a stage's artifacts."""


def perform_stages(
    values: Values,
    stages: Sequence[Stage],
    description: dict[str, Any],
    watch: Watch = UNWATCHED,
    conclude: Callable[[], dict[str, Any]] = dict,
    retry: bool = False,
) -> None:
    """Perform the stages of a run directory, and reuse all artifacts that are still right.

    If `retry` is true, stages with steps to which the model gave no usable reply are made again.

    `description` goes into the manifest beside the artifacts, and its `versions` into every key. `conclude` returns the
    facts that are added at the end. If a stage fails, all earlier artifacts stay. If nothing is missing, nothing is
    written. `UserError` for a folder that holds files, but is no run directory.
    """
    directory = values.directory
    keys, listed = _compute_keys(stages, description["versions"]), read_entries(directory)
    kept = _find_kept(directory, listed, keys)
    for path in directory.iterdir():
        ours = path.name in keys or path.name in listed or _is_partial(path)
        if ours and path.name not in kept:
            remove(path)
    missing = [stage for stage in stages if not kept.keys() >= set(stage.artifacts)]
    if missing and values.lenders:
        write_manifest(directory, description, kept)
        kept |= _borrow(values, missing, keys)
    for stage in stages:
        inputs = {name: kept[name]["sha256"] for name in stage.inputs}
        reused = all(name in kept and kept[name].get("inputs") == inputs for name in stage.artifacts)
        if retry and _has_unusable(stage, kept):
            reused = False
        watch.announce(stage, reused)
        if not reused:
            kept = {name: entry for name, entry in kept.items() if name not in stage.artifacts}
            write_manifest(directory, description, kept)
            for name in stage.artifacts:
                remove(directory / name)
            with watch.progress(stage.name, None):
                stage.make(values)
            for name in stage.artifacts:
                kept[name] = {"key": keys[name], "sha256": hash_file(directory / name), "inputs": inputs}
            kept[stage.artifacts[0]].update(watch.take_facts())
    write_manifest(directory, {**description, **conclude()}, {name: kept[name] for name in keys})


def plan_stages(
    directory: Path, stages: Sequence[Stage], versions: Any, retry: bool = False
) -> list[tuple[Stage, Plan]]:
    """Plan what `perform_stages` would do in a run directory, which need not exist. Nothing is written.

    `UserError` for a folder that holds files, but is no run directory.
    """
    kept = _find_kept(directory, read_entries(directory), _compute_keys(stages, versions))
    plans: list[tuple[Stage, Plan]] = []
    remade = set[str]()
    for stage in stages:
        inputs = {name: kept[name]["sha256"] for name in stage.inputs if name in kept}
        plan: Plan = "made"
        if all(name in kept for name in stage.artifacts):
            same = all(kept[name].get("inputs") == inputs for name in stage.artifacts)
            plan = "made if an input changes" if remade & set(stage.inputs) else "kept" if same else "made"
            if retry and _has_unusable(stage, kept):
                plan = "made"
        remade |= set(stage.artifacts) if plan != "kept" else set()
        plans.append((stage, plan))
    return plans


def _find_kept(directory: Path, listed: dict[str, dict[str, Any]], keys: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Find the entries of the artifacts that are still right. `UserError` if the folder is no run directory."""
    found = list(directory.iterdir()) if directory.is_dir() else []
    if not (directory / MANIFEST).exists() and any(not _is_partial(path) for path in found):
        raise UserError(f"{directory}: holds files but no {MANIFEST}: not a run directory: change out or run_id")
    return {name: entry for name, entry in listed.items() if _is_kept(directory / name, entry, keys, name)}


def _has_unusable(stage: Stage, kept: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether the model gave no usable reply in a step of a stage, as the entries of its artifacts say."""
    return any(count_steps(kept[name], "unusable") for name in stage.artifacts if name in kept)


def _borrow(values: Values, stages: Sequence[Stage], keys: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Link the artifacts of each stage from the first lender that has all of them; returns their entries."""
    borrowed: dict[str, dict[str, Any]] = {}
    listed = {lender: read_entries(lender) for lender in values.lenders}
    for stage in stages:
        for lender, entries in listed.items():
            own = {name: entries.get(name) for name in stage.artifacts}
            if all(_is_kept(lender / name, entry, keys, name) for name, entry in own.items()):
                for name in own:
                    link_whole(lender / name, values.directory / name)
                borrowed |= {name: entry for name, entry in own.items() if entry is not None}
                break
    return borrowed


def _is_partial(path: Path) -> bool:
    return path.name.endswith(".partial")


def _compute_keys(stages: Sequence[Stage], versions: Any) -> dict[str, str]:
    keys: dict[str, str] = {}
    for stage in stages:
        key = digest([stage.name, stage.settings, versions, [keys[name] for name in stage.inputs]])
        keys.update(dict.fromkeys(stage.artifacts, key))
    return keys


def read_entries(directory: Path) -> dict[str, dict[str, Any]]:
    """Read what the manifest of a run directory says about each artifact. Without a manifest, the result is empty."""
    try:
        artifacts = orjson.loads((directory / MANIFEST).read_bytes())["artifacts"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return artifacts if isinstance(artifacts, dict) else {}


def count_steps(entry: Mapping[str, Any], what: str) -> int:
    """Count the steps of a kind in the entry of an artifact: those that asked the model, or those without a reply."""
    found: int = entry.get("steps", {}).get(what, 0)
    return found


def _is_kept(path: Path, entry: Any, keys: dict[str, str], name: str) -> bool:
    known = isinstance(entry, dict) and name in keys and entry.get("key") == keys[name]
    return known and path.is_file() and hash_file(path) == entry.get("sha256")


def write_manifest(directory: Path, description: dict[str, Any], artifacts: dict[str, dict[str, Any]]) -> None:
    """Write the manifest, with a line for each narrative, unless it has this content already.

    A finished run may therefore be in a read-only folder.
    """
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    lines = {name: orjson.Fragment(orjson.dumps(own)) for name, own in description.get(NARRATIVES, {}).items()}
    listed = {NARRATIVES: lines} if lines else {}
    content = orjson.dumps({**description, **listed, "artifacts": artifacts}, option=options)
    with suppress(OSError):
        if (directory / MANIFEST).read_bytes() == content:
            return
    with write_whole(directory / MANIFEST) as out:
        out.write(content)
