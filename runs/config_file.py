"""Reading a run's configuration: a preset, a YAML file laid over it, and `key=value` settings over both."""

from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from indexing.errors import UserError
from indexing.files import read_text
from runs.config import RunConfig

PRESETS = tuple(
    sorted(path.name.removesuffix(".yaml") for path in files("runs.presets").iterdir() if path.name.endswith(".yaml"))
)
"""The runs of the paper by their names, and our own best, `keystone`."""


def read_config(path: Path | None, overrides: list[str] | None = None, preset: str | None = None) -> RunConfig:
    """The run that a preset, or a YAML file, or both describe, with `key.key=value` overrides (values in YAML).

    The file's values are laid over the preset's, and the overrides over both.
    """
    values: dict[str, Any] = {}
    if preset is not None:
        if preset not in PRESETS:
            raise UserError(f"--preset {preset}: unknown; expected one of {', '.join(PRESETS)}")
        values = yaml.safe_load(files("runs.presets").joinpath(f"{preset}.yaml").read_text(encoding="utf-8"))
    if path is not None:
        _merge(values, _read(path))
    for override in overrides or []:
        _lay_over(values, override)
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        set_keys = {override.partition("=")[0] for override in overrides or []}
        named = path or f"--preset {preset}"
        raise UserError("\n".join(_explain(item, named, set_keys) for item in error.errors())) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path)
        values = _loaded(text)
        _check_repeated(path, yaml.compose(text))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected keys and values, found {type(values).__name__}")
    return values


def _merge(values: dict[Any, Any], over: dict[Any, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _merge(values[key], value)
        else:
            values[key] = value


def _loaded(text: str) -> Any:
    """The value of plain YAML, which can be shown in a message.

    `YAMLError` for aliases, which can make a value without end, and for tags, with which the library's errors are of
    any kind; `ValueError` for a number that Python does not print.
    """
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None):
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise yaml.YAMLError(f"found an alias or a tag in line {line}, expected plain values")
    value = yaml.safe_load(text)
    repr(value)
    return value


def _check_repeated(path: Path, node: yaml.Node | None) -> None:
    """YAML keeps the last of two equal keys and says nothing; a configuration must not."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            raise UserError(f"{path}:{key.start_mark.line + 1}: the key {key.value} occurs more than once")
        seen.add(key.value)
        _check_repeated(path, value)


def _lay_over(values: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    *parents, last = dotted.split(".")
    if not equals or not all((*parents, last)):
        raise UserError(f"--set {override}: expected KEY=VALUE, such as retrieval.depth=500")
    try:
        value = _loaded(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"--set {override}: the value is not YAML") from error
    for parent in parents:
        inner = values.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {override}: {parent} is a value, not a part with keys")
        values = inner
    values[last] = value


def _explain(item: Any, path: Path | str, set_keys: set[str]) -> str:
    location = ".".join(str(part) for part in item["loc"])
    where = "--set " if location in set_keys else f"{path}: "
    match item["type"]:
        case "extra_forbidden":
            known = sorted(_model_at(item["loc"][:-1]).model_fields)
            return f"{where}{location}: unknown key (value {item['input']!r}); expected one of {', '.join(known)}"
        case "missing":
            return f"{where}{location}: missing; expected a value"
        case "value_error":
            return where + ".".join(filter(None, [location, str(item["ctx"]["error"])]))
        case _:
            return f"{where}{location}: found {item['input']!r}; {item['msg'][0].lower()}{item['msg'][1:]}"


def _model_at(location: tuple[str | int, ...]) -> type[BaseModel]:
    model: type[BaseModel] = RunConfig
    for part in location:
        annotation = model.model_fields[str(part)].annotation
        model = next(one for one in (annotation, *get_args(annotation)) if _is_model(one))
    return model


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
