"""Checks of what a caller in Python gives: paths, settings, configurations, queries and runs.

Each error names the argument, what it was, and which function makes what it should be.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.io.hub import to_local
from keystone.indexing.types import describe_id, has_lone_surrogate, is_id
from keystone.retrieval.types import Query
from keystone.runs.config.read import PRESETS, read_config, read_preset
from keystone.runs.config.run_config import RunConfig, chooses_depth
from keystone.runs.config.sections import Answer, Fusion, Retrieval, bound_chosen_rows
from keystone.runs.trec.types import Qrels, Run

T = TypeVar("T")

_OPTION = re.compile(r"^--(?:set )?", re.MULTILINE)
"""The option before a setting that a message of the command line names."""
_DEFAULTS = {"retrieval": Retrieval().depth, "fusion": Fusion().depth, "answer": Answer().documents}
_TEXTS = ("question", "sparse_text", "dense_text", "passage")


def check_path(value: Any, name: str) -> Path:
    """Return a path. If it is a name of the hub, Keystone fetches the data set.

    `UserError` for a value that names none.
    """
    try:
        return Path(to_local(os.fsdecode(value)))
    except TypeError:
        raise UserError(f"{name}: found {type(value).__name__}, expected a path") from None


def check_paths(value: Any, name: str) -> list[Path]:
    """Return a list of paths, each as from `check_path`. `UserError` for a single path, too."""
    if isinstance(value, str | bytes | os.PathLike) or not isinstance(value, Iterable):
        raise UserError(f"{name}: found {type(value).__name__}, expected a list of paths")
    return [check_path(path, name) for path in value]


def read_settings(path: Path | None, settings: Mapping[str, Any], preset: Any) -> RunConfig:
    """Lay settings over a file and a preset, as `read_config` does. `UserError` names settings as Python does."""
    if not isinstance(preset, str | None):
        found = f"preset: found {type(preset).__name__}, expected the name of a preset"
        raise UserError(f"{found}; settings have names, as in retrieval={{'depth': 100}}")
    try:
        return read_config(path, list(_list_overrides(settings)), preset)
    except UserError as error:
        raise UserError(_OPTION.sub("", str(error))) from None


def lay_over_preset(preset: Any, settings: Mapping[str, Any]) -> RunConfig:
    """Lay settings over those of a preset, or over the defaults for None."""
    below = read_preset(preset) if preset in PRESETS else {}
    return read_settings(None, _merge(lower_depths(below, settings), settings), preset)


def change_settings(base: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """Lay settings over those of a configuration that differ from the defaults."""
    own = base.model_dump(exclude_unset=True)
    if isinstance(base.retrieval.systems, dict):
        own["retrieval"]["systems"] = base.retrieval.list_own_settings()
    if base.has_default_choice:
        del own["fusion"]["depth"]
        if base.retrieval.depth < _DEFAULTS["fusion"]:  # another track has a fixed depth, which follows this one
            settings = _merge({"retrieval": {"depth": base.retrieval.depth}}, settings)
    return read_settings(None, _merge(_merge(own, lower_depths(own, settings)), settings), None)


def _merge(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**values, **over}
    for key, own in over.items():
        if isinstance(below := values.get(key), Mapping) and isinstance(own, Mapping):
            merged[key] = _merge(below, own)
    return merged


def lower_depths(below: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Lower the depths that cannot exceed a given one: `retrieval.depth`, `fusion.depth`, `answer.documents`.

    A depth that `settings` give stays, and one that the track chooses is still chosen. `below` are the settings that
    `settings` are laid over. Returns only the lowered depths, the last first, so that none exceeds another on the way.
    """
    lowered, limit = dict[str, Any](), None
    track = settings.get("track", below.get("track", RunConfig.model_fields["track"].default))
    for part, key in (("retrieval", "depth"), ("fusion", "depth"), ("answer", "documents")):
        own, kept = settings.get(part, {}), below.get(part, {}).get(key, _DEFAULTS[part])
        if not isinstance(own, Mapping):
            break
        chosen = part == "fusion" and chooses_depth(track) and key not in below.get(part, {})
        long = isinstance(kept, Mapping)  # {choose: expected, most: 1000}
        most = (kept if long else {}).get("most", bound_chosen_rows(limit))
        number = most if chosen or long else kept
        given = own.get(key, number)
        if isinstance(given, Mapping):
            given = given.get("rows", given.get("most", most if limit is None else min(most, limit)))
        elif key not in own and limit is not None and limit < number:
            given = limit
            lowered = {part: {key: {"most": limit} if long else limit}} | lowered
        limit = int(given) if isinstance(given, int | np.integer) and (key in own or limit is not None) else None
    return lowered


def _list_overrides(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """List settings as `read_config` takes them: `retrieval={"depth": 5}` becomes `retrieval.depth=5`.

    If such a path cannot name a key of a mapping, such as `a.b`, the mapping is one value. It replaces the one below.
    """
    for key, value in settings.items():
        if isinstance(value, Mapping) and value and all(re.fullmatch("[^.=]+", str(inner)) for inner in value):
            yield from _list_overrides(value, f"{prefix}{key}.")
            continue
        yield write_override(f"{prefix}{key}", value)


def write_override(name: str, value: Any) -> str:
    """Write a setting as `read_config` takes it, its value as a line of YAML. `UserError` for an impossible one."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=_make_plain)
        text.encode()
        line = yaml.safe_dump(json.loads(text), default_flow_style=True, width=inf).strip()
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{name}: found a value that no YAML file can hold: {error}") from error
    return f"{name}={line.removesuffix('...').strip()}"


def _make_plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


def check_config(value: Any) -> RunConfig:
    """Return the configuration. `UserError` for anything else."""
    if not isinstance(value, RunConfig):
        raise UserError(f"config: found {type(value).__name__}, expected what configure returns")
    return value


def check_index(value: Any) -> Index:
    """Return the index. `UserError` for anything else."""
    if not isinstance(value, Index):
        raise UserError(f"index: found {type(value).__name__}, expected what open_index returns")
    return value


def check_function(value: Any, name: str) -> None:
    """Raise `UserError` for a value that cannot be called, such as the name of a method."""
    if not callable(value):
        raise UserError(f"{name}: found {value!r:.100}, expected a function")


def check_count(value: Any, name: str, least: int = 1) -> int:
    """Return a whole number. `UserError` for any other value, and for one below `least`."""
    if not isinstance(value, int | np.integer) or value < least:
        raise UserError(f"{name}: found {value!r}, expected a whole number of at least {least}")
    return int(value)


def check_columns(value: Any, name: str) -> Any:
    """Return a `Run` or `Qrels`. `UserError` for anything else."""
    if not isinstance(value, Run | Qrels):
        raise UserError(f"{name}: found {type(value).__name__}, expected a Run or Qrels, as to_run and to_qrels make")
    return value


def check_all(value: Any, kind: type[T], name: str, maker: str) -> list[T]:
    """Return a list of objects of a kind. `UserError` for anything else names the function that makes the list."""
    many = isinstance(value, Iterable) and not isinstance(value, str | Mapping) and not hasattr(value, "columns")
    found = list(value) if many else [value]
    if other := [one for one in found if not isinstance(one, kind)]:
        expected = f"expected a list of {kind.__name__}, as {maker} makes it"
        raise UserError(f"{name}: found {type(other[0]).__name__}, {expected}")
    return found


def check_queries(value: Any) -> list[Query]:
    """Return the queries as a list. `UserError` unless each has texts, and an id of its own for TREC files."""
    queries = check_all(value, Query, "queries", "decompose")
    if not queries:
        raise UserError("queries: found none, expected at least one")
    for query in queries:
        for name in (query.id, query.topic_id):
            check_id(name, "queries")
        for field in _TEXTS:
            text, where = getattr(query, field), f"query {query.id!r}: {field}"
            if not isinstance(text, str):
                raise UserError(f"{where}: found {type(text).__name__}, expected text")
            if has_lone_surrogate(text):
                raise UserError(f"{where}: found half of a surrogate pair, expected Unicode text")
    check_distinct([query.id for query in queries], "queries")
    return queries


def check_id(value: Any, name: str) -> None:
    """Raise `UserError` for an id that no TREC file can hold."""
    if not isinstance(value, str) or not is_id(value):
        expected = describe_id(value).removesuffix(" or a whole number")
        raise UserError(f"{name}: found the id {value!r}, expected {expected}")


def check_ids(value: Any, name: str) -> list[str]:
    """Return a list of ids; a single id may be given alone. `UserError` for an id that is no text."""
    ids = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    for one in (one for one in ids if not isinstance(one, str)):
        check_id(one, name)
    return ids


def check_distinct(ids: Sequence[str], name: str) -> None:
    """Raise `UserError` for an id that occurs twice."""
    if twice := [one for one, times in Counter(ids).items() if times > 1]:
        raise UserError(f"{name}: found the id {twice[0]!r} twice, expected an id of its own for each query")


def check_ranked(runs: Sequence[Run], ids: Sequence[str], name: str) -> None:
    """Raise `UserError` if none of the runs has a query or topic of these ids, so that it is of no use."""
    ranked = [one for run in runs for one in run.query_ids]
    if not set(ids) & set(ranked):
        found = f"rankings of other ids, such as {ranked[0]!r}" if ranked else "no ranking"
        raise UserError(f"{name}: found {found}, expected those of the queries or topics, such as {ids[0]!r}")
