"""The reader of configurations: a preset, a YAML file laid over it, and `key=value` settings over both."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import orjson
import yaml
from pydantic import BaseModel, ValidationError

from keystone.generation.readers.settings import READERS
from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import STDIN, read_text
from keystone.retrieval.search import KINDS
from keystone.runs.config.presets import find_presets
from keystone.runs.config.run_config import RunConfig
from keystone.runs.tracks.violations import shorten_value

PRESETS = tuple(find_presets())
"""The names of the presets: the runs of the paper, `keystone`, two of our own, and one for each reader."""

DEFAULT_RUN_ID = "keystone"
"""The run id, if neither a configuration nor a preset names one."""

Layer = tuple[str, dict[str, Any]]
"""An override, and the values after it. For the values before all overrides, the override is empty."""

MOST_LEVELS = 50
"""The most levels of lists and mappings in YAML. A configuration has five."""
_BOOLEANS = {"True": " (as YAML reads true, yes and on without quotes)"}
_BOOLEANS["False"] = " (as YAML reads false, no and off without quotes)"
LONGEST_OPTION_CHARACTERS = 200
"""How many characters of an override a message shows."""


def read_config(
    path: Path | None,
    overrides: list[str] | None = None,
    preset: str | None = None,
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> RunConfig:
    """Read the run that a preset, a YAML file and `key.key=value` overrides (values in YAML) describe.

    A folder stands for the one YAML file in it, as a run directory does. The file's values are laid over the preset's,
    and the overrides over both; `defaults` lie below all. A file may name the preset itself, by the key `preset`.
    `UserError` names every key that is unknown or has an impossible value, and the file or the override that holds it.
    """
    values: dict[str, Any] = {}
    if preset is not None and preset not in PRESETS:
        raise UserError(f"--preset {preset}: unknown; expected one of {', '.join(PRESETS)}")
    if path is not None:
        path = _find_file(path)
        values = _read_yaml(path)
    if preset is not None:
        if "preset" in values:
            raise UserError(f"{path}: preset: found with --preset {preset}, expected one of them")
        values["preset"] = preset
    values = {**defaults, **_lay_over_preset(values, str(path))}
    layers = [("", deepcopy(values))]
    for override in overrides or []:
        lay_over(values, override)
        layers.append((override, deepcopy(values)))
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        found = {_explain(item): _format_location(item) for item in error.errors()}
        source = str(path or (preset and f"--preset {preset}") or "no YAML file")
        blamed = _blame_overrides(found, layers, values)
        raise UserError("\n".join(_format_error(*one, blamed[one[0]], source) for one in found.items())) from error


def _lay_over_preset(values: dict[str, Any], source: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """Lay the values of a file over the preset that its key `preset` names, if it has that key.

    `above` names the presets that are laid over this file. `UserError` for one of them, and for an unknown preset.
    """
    if "preset" not in values:
        return values
    name = values.pop("preset")
    if name not in PRESETS or name in above:
        found = f"{shorten_value(name)}{', which is laid over this file' if name in above else ''}"
        raise UserError(f"{source}: preset: found {found}; expected one of {', '.join(PRESETS)}")
    preset = find_presets()[name]
    whole = _lay_over_preset(yaml.safe_load(preset.read_text(encoding="utf-8")), str(preset), (*above, name))
    _merge(whole, values)
    return whole


def read_preset(name: str) -> dict[str, Any]:
    """Read the values of a preset, laid over those of the preset that it names. `UserError` for an unknown name."""
    return _lay_over_preset({"preset": name}, f"--preset {name}")


def make_config(
    config: Path | None, overrides: list[str], preset: str | None, topics: Path, index: Path | None
) -> RunConfig:
    """Make the configuration of answers to topics (`-`: standard input) over an index. No override may set either.

    Without `index`, the index is the one that the YAML file names, or else the folder `index`.
    """
    for override in overrides:
        if (key := override.partition("=")[0]) in ("index", "topics"):
            raise UserError(f"--set {shorten_option(override)}: {key} is no setting of this command; see its --help")
    topics = STDIN if topics == Path("-") else topics
    named = {"topics": topics, "index": index}
    fixed = [f"{key}={orjson.dumps(str(path)).decode()}" for key, path in named.items() if path is not None]
    unnamed = config is None and preset is None
    own = [f"run_id={DEFAULT_RUN_ID}"] * unnamed + overrides + fixed
    return read_config(config, own, preset, {"index": "index"})


def _blame_overrides(found: Iterable[str], layers: Sequence[Layer], whole: dict[str, Any]) -> dict[str, str]:
    """Find the override that causes each error; it is empty if the file or the preset causes the error.

    An error blames the last override that changes the value under its key. If there is none, it blames the first one
    with which it occurs. Every layer gets the required values, so that the others can be checked.
    """
    required = {key for key, field in RunConfig.model_fields.items() if field.is_required()} & whole.keys()
    blamed: dict[str, str] = {}
    for override, values in layers:
        try:
            RunConfig.model_validate({key: whole[key] for key in required} | values)
            errors = []
        except ValidationError as error:
            errors = [_explain(item) for item in error.errors()]
        blamed = {message: blamed.get(message, override) for message in errors}
    for message in found:
        key = message.partition(":")[0].split(".")
        for (_, before), (override, after) in pairwise(layers):
            if [_get_value(before, key)] != [_get_value(after, key)]:  # in a list, nan is equal to itself
                blamed[message] = override
    return blamed


def _get_value(values: Any, keys: Iterable[str]) -> Any:
    """Get the value under keys within each other, or what stands in its place; None if there is nothing."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else values
    return values


def _format_error(message: str, key: str, override: str, source: str) -> str:
    if override.startswith(f"{key}="):
        return f"--set {message}"
    return f"--set {shorten_option(override)}: {message}" if override else f"{source}: {message}"


def _find_file(path: Path) -> Path:
    """Find the one YAML file of a folder; return any other path. `UserError` for a folder with none or several."""
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.yaml"))
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise UserError(f"{path}: is a folder, expected a YAML file, or a run directory with one; found {names} in it")
    return found[0]


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path)
        values = parse_value(text)
        _check_repeated(path, yaml.compose(text))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from error
    except ValueError as error:
        raise UserError(f"{path}: not YAML: {error}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected keys and values, found {type(values).__name__}")
    return values


def _merge(values: dict[Any, Any], over: dict[Any, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _merge(values[key], value)
        else:
            values[key] = value


def parse_value(text: str) -> Any:
    """Parse plain YAML to a value that a message can show. `ValueError` for any other text.

    Aliases are refused, because they can make a value without end. Tags are refused, because with them the library
    raises errors of any kind. Too many levels are refused, and numbers that Python does not print.
    """
    levels = 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            line = event.start_mark.line + 1 if event.start_mark else 0
            if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None):
                raise ValueError(f"found an alias or a tag in line {line}, expected plain values")
            levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if levels > MOST_LEVELS:
                raise ValueError(f"found more than {MOST_LEVELS} levels in line {line}, expected fewer")
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    repr(value)
    return value


def _check_repeated(path: Path, node: yaml.Node | None) -> None:
    """Raise `UserError` for a repeated key. YAML would silently keep the last one."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            raise UserError(f"{path}:{key.start_mark.line + 1}: the key {key.value} occurs more than once")
        seen.add(key.value)
        _check_repeated(path, value)


def lay_over(values: dict[str, Any], override: str) -> None:
    """Set the value of an override `key.key=value` in nested values. `UserError` for another form."""
    dotted, equals, text = override.partition("=")
    *parents, last = dotted.split(".")
    if not equals or not all((*parents, last)):
        raise UserError(f"--set {override}: expected KEY=VALUE, such as retrieval.depth=500")
    try:
        value = parse_value(text)
    except ValueError as error:
        raise UserError(f"--set {shorten_option(override)}: the value is not YAML: {error}") from error
    for parent in parents:
        inner = values.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {override}: {parent} is a value, not a part with keys")
        values = inner
    values[last] = value


def shorten_option(text: str) -> str:
    """Shorten an option for a message."""
    return text if len(text) <= LONGEST_OPTION_CHARACTERS else f"{text[:LONGEST_OPTION_CHARACTERS]}..."


def _format_location(item: Any) -> str:
    """Join the keys that lead to an error. pydantic adds the name of a reader after the key `reader`.

    It also adds the form of `retrieval.systems`, and the kind of a system after its name.
    """
    keys = [str(part) for part in item["loc"]]
    if keys[:2] == ["retrieval", "systems"]:
        keys = keys[:2] + keys[3:4] + keys[5:]
    return ".".join(keys[:1] + keys[2:] if keys[:1] == ["reader"] else keys)


def _explain(item: Any) -> str:
    location = _format_location(item)
    match item["type"]:
        case "extra_forbidden":
            known = sorted(_find_model(item["loc"][:-1]).model_fields)
            return f"{location}: unknown key (value {shorten_value(item['input'])}); expected one of {', '.join(known)}"
        case "unknown_reader" | "unknown_kind":
            key, known = ("name", sorted(READERS)) if item["type"] == "unknown_reader" else ("kind", [*KINDS])
            if not isinstance(found := item["input"], dict):
                return f"{location}: found {shorten_value(found)}; expected the key {key}: one of {', '.join(known)}"
            return f"{location}.{key}: found {shorten_value(found.get(key))}; expected one of {', '.join(known)}"
        case "missing":
            return f"{location}: missing; expected a value"
        case "value_error":
            return ".".join(filter(None, [location, str(item["ctx"]["error"])]))
        case _:
            found = shorten_value(item["input"]) + _BOOLEANS.get(str(item["input"]), "")
            return f"{location}: found {found}; {item['msg'][0].lower()}{item['msg'][1:]}"


def _find_model(location: tuple[str | int, ...]) -> type[BaseModel]:
    """Find the model that has a key. Its location names the reader after the key `reader`, and the kind of a system."""
    if location[:1] == ("reader",):
        return READERS[str(location[1])].settings
    if location[:2] == ("retrieval", "systems"):
        return KINDS[str(location[4])]
    model: type[BaseModel] = RunConfig
    for part in location:
        annotation = model.model_fields[str(part)].annotation
        kinds = (one for one in (annotation, *get_args(annotation)) if isinstance(one, type))
        model = next(one for one in kinds if issubclass(one, BaseModel))
    return model
