"""The page docs/config.md, made from the models of the configuration: a section for each model, a row for each key.

After a change of a model, `python -m keystone.runs.config.reference > docs/config.md` writes the page again.
"""

import ast
import inspect
import math
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from keystone.generation.readers.settings import READERS
from keystone.indexing.settings import OneOf
from keystone.retrieval.search import KINDS
from keystone.runs.config.run_config import RunConfig

PAGE_HEAD = """\
# The configuration of a run

This page is for those who change how a run works: it lists every key with its values, its default and its meaning.

```console
keystone run run.yaml --set retrieval.depth=500
```

A run is one YAML file. Only `run_id`, `index` and `topics` have no default. `--set KEY=VALUE` overrides a key, and
such options alone can replace the file. A file overrides a [preset](run.md#presets). An unknown key is an error, and
so is an impossible value.

These ten keys matter most: `track`, `queries.method`, `retrieval.systems`, `retrieval.depth`, `fusion.depth`,
`rerank.method`, `grading.method`, `answer.method`, `answer.words` and `model`.

`(paper)` marks the values of the paper; [methods](methods.md#evidence-for-the-defaults) says why the defaults differ.
`rules` always means "no language model". "As above" means the row of this key in an earlier section of the same part.

`config.yaml` of a run directory shows all keys with their values. Keystone makes this page from its code: change
`runs/config/sections.py` or `run_config.py`, and then run `python -m keystone.runs.config.reference > docs/config.md`.
"""
"""The text before the table of keys."""
TYPE_NAMES = {
    str: "text",
    Path: "path",
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    NoneType: "`null`",
}
"""The names of types in the tables."""


def make_reference() -> str:
    """Make the whole page."""
    return "\n".join([PAGE_HEAD.rstrip("\n"), *_write_section(RunConfig, "")])


def _write_section(model: type[BaseModel], key: str, above: set[str] | None = None) -> Iterator[str]:
    """Write the lines of a model's section and of the sections below it.

    `above` has the rows of the sections of its other kinds. A row that is among them is not written again.
    """
    meanings = _read_meanings(model)
    yield from ("", f"## `{key}`" if key else "## The run", "", _join_lines(inspect.getdoc(model) or ""), "")
    below: list[tuple[type[BaseModel], str]] = []
    rows: dict[str, str] = {}
    for name, field in model.model_fields.items():
        inner = f"{key}.{name}" if key else name
        part = _find_model(field.annotation)
        if part is model:  # the same keys once more
            rows[name] = f"| `{name}` | the keys of `{key}` | {_describe_default(field)} | {meanings[name]} |"
            continue
        if name == "reader":
            below += [(one.settings, f"{inner}` with `name: {of}") for of, one in READERS.own.items()]
            continue
        if name == "systems" and key == "retrieval":
            below += [(one, f"{inner}.NAME` with `kind: {of}") for of, one in KINDS.own.items()]
        if part:
            below.append((part, inner))
        if above and key.partition("` with `")[2].partition(":")[0] == name:  # the heading says its value
            continue
        if part is None or field.default is None:
            values = _describe_values(field, inner)
            rows[name] = f"| `{name}` | {values} | {_describe_default(field)} | {meanings[name]} |"
    repeated = [name for name, row in rows.items() if above and row in above]
    if repeated:
        yield from (f"As above: {', '.join(f'`{name}`' for name in repeated)}.", "")
    if len(repeated) < len(rows):
        yield from ("| key | values | default | meaning |", "|---|---|---|---|")
        yield from (row for name, row in rows.items() if name not in repeated)
    if above is not None:
        above |= set(rows.values())
    kinds: dict[str, set[str]] = {}
    for part, inner in below:
        stem, _, kind = inner.partition("` with `")
        yield from _write_section(part, inner, kinds.setdefault(stem, set()) if kind else None)


def _read_meanings(model: type[BaseModel]) -> dict[str, str]:
    """Read the text below each attribute in the source of a model and of the models that it extends."""
    found = {}
    for parent in reversed([one for one in model.__mro__ if issubclass(one, BaseModel) and one is not BaseModel]):
        (definition,) = ast.parse(dedent(inspect.getsource(parent))).body
        assert isinstance(definition, ast.ClassDef)
        for node, below in pairwise(definition.body):
            match node, below:
                case ast.AnnAssign(), ast.Expr(ast.Constant(str(text))):
                    found[ast.unparse(node.target)] = _join_lines(text)
    return found


def _describe_values(field: FieldInfo, key: str) -> str:
    """Describe the values of a field: its type, then its limits."""
    found = (limit for one in field.metadata for limit in _find_limits(one))
    limits = {name: f"{value:,}" for name, value in found if math.isfinite(value)}
    types = " or ".join(_describe_type(part, key) for part in _list_alternatives(field.annotation))
    if {"at least", "at most"} <= limits.keys():
        return f"{types}, {limits['at least']} to {limits['at most']}"
    return ", ".join([types, *(f"{name} {value}" for name, value in limits.items())])


def _find_limits(constraint: object) -> Iterator[tuple[str, float]]:
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    for attribute, name in {**words, "max_length": "length at most"}.items():
        if (value := getattr(constraint, attribute, None)) is not None:
            yield name, value


def _list_alternatives(annotation: Any) -> list[Any]:
    return list(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else [annotation]


def _describe_type(annotation: Any, key: str) -> str:
    """Describe a type in words."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if get_origin(annotation) is Annotated and isinstance(arguments[1], OneOf):
        return ", ".join(f"`{value}`" for value in arguments[1].list_names())
    if get_origin(annotation) is Annotated:
        return _describe_type(arguments[0], key)
    if get_origin(annotation) is list:
        return f"list of {_describe_type(arguments[0], key)}"
    if get_origin(annotation) is dict:
        held = get_args(arguments[1])[0] if get_origin(arguments[1]) is Annotated else arguments[1]
        if held is not Any and held not in TYPE_NAMES:
            return "names with the keys of a section below each"
        return f"names with a {TYPE_NAMES.get(held, 'value')} each"
    if _find_model(annotation):
        return f"the keys of [`{key}`](#{key.replace('.', '')})"
    return TYPE_NAMES[arguments[0] if arguments else annotation]


def find_models(annotation: Any) -> list[type[BaseModel]]:
    """Find the models that a field holds: none, or one, optional or not; for the field `reader` several."""
    parts = (get_args(part)[0] if get_origin(part) is Annotated else part for part in _list_alternatives(annotation))
    return [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]


def _find_model(annotation: Any) -> type[BaseModel] | None:
    return next(iter(find_models(annotation)), None)


def _describe_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = str(field.default) if isinstance(field.default, Path) else field.default
    return f"`{yaml.safe_dump(value, default_flow_style=True).removesuffix(chr(10)).removesuffix('...').strip()}`"


def _join_lines(text: str) -> str:
    """Join a docstring to one line for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(make_reference() + "\n")
