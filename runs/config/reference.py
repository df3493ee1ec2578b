"""The page docs/config.md, made from the models of the configuration: a section for each model, a row for each key.

The meaning in a row is the first sentence below the key in the code. The page about the subject tells users what
further sentences say there. After a change of a model, `python -m keystone.runs.config.reference` writes the page
again, and the table of readers on docs/papers.md.
"""

import ast
import inspect
import math
import re
from collections.abc import Iterator, Sequence
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
from keystone.retrieval.system import System
from keystone.runs.config.run_config import RunConfig

PAGE_HEAD = """\
# The configuration of a run

This page is for those who change how a run works: every key, its values, its default, and its effect.

```console
keystone run run.yaml --set retrieval.depth=500
```

A run is one YAML file. `--set KEY=VALUE` overrides it, and such options alone can replace it. The file overrides
a [preset](run.md#presets). An unknown key or an impossible value is an error. `config.yaml` of a run directory has all
keys, `model.key_env` only if you name it; systems leave out what `retrieval` gives them.

These ten keys matter most: `track`, `queries.method`, `retrieval.systems`, `retrieval.depth`, `fusion.depth`,
`rerank.method`, `grading.method`, `answer.method`, `answer.words` and `model`.

Limits with a decimal point admit any number between them, other limits whole numbers. `rules` means "no language
model". `(paper)` marks values of the paper; [methods](methods.md#evidence-for-the-defaults) says why defaults differ.
"""
"""The text before the tables of keys."""
READERS_HEAD = """\
## The settings of `reader`

`calls` and `tokens` are [hard limits](run.md#readers). Readers of `fused` and `escalate` have their default settings.
"""
"""The text before the table of readers."""
READERS_ROW = (
    "| `reader` | [its keys](papers.md#the-settings-of-reader) | `{name: plain}` | "
    "What [gathers](run.md#readers) the evidence of answers. |"
)
"""The row for the settings of readers, which are on the page of the readers."""
TYPE_NAMES = {
    str: "text",
    Path: "path",
    bool: "`true`/`false`",
    int: "whole number",
    float: "number",
    NoneType: "`null`",
}
"""The names of types in the tables."""


def make_reference() -> str:
    """Make the whole page docs/config.md."""
    return "\n".join([PAGE_HEAD.rstrip("\n"), *_write_section(RunConfig, "")])


def make_readers() -> str:
    """Make the last section of docs/papers.md: a table with the settings of all readers."""
    kinds = [(name, kind.settings) for name, kind in READERS.own.items()]
    return "\n".join([READERS_HEAD.rstrip("\n"), "", *_write_kinds(kinds, "reader", "name", "`plain`")])


def write_pages(docs: Path) -> None:
    """Write docs/config.md, and the last section of docs/papers.md."""
    (docs / "config.md").write_text(make_reference() + "\n")
    papers = docs / "papers.md"
    text, _, _ = papers.read_text().partition(READERS_HEAD.partition("\n")[0])
    papers.write_text(f"{text.rstrip()}\n\n{make_readers()}\n")


def _write_section(model: type[BaseModel], key: str) -> Iterator[str]:
    yield from ("", f"## `{key}`" if key else "## The run", "", _cut_sentence(inspect.getdoc(model) or ""), "")
    if model is System:
        yield from _write_kinds(list(KINDS.own.items()), key, "kind", "required")
        return
    yield from ("| key | values | default | meaning |", "|---|---|---|---|")
    meanings = _read_meanings(model)
    below: list[tuple[type[BaseModel], str]] = []
    for name, field in model.model_fields.items():
        inner = f"{key}.{name}" if key else name
        part = _find_model(field.annotation)
        if part is model:  # the same keys once more
            yield f"| `{name}` | the keys of `{key}` | {_describe_default(field)} | {meanings[name]} |"
        elif name == "reader":
            yield READERS_ROW
        elif part:
            below.append((part, inner))
        if part is None or (part is not model and field.default is None):
            yield f"| `{name}` | {_describe_values(field, inner)} | {_describe_default(field)} | {meanings[name]} |"
        if name == "systems" and key == "retrieval":
            below.append((System, f"{inner}.NAME"))
    for part, inner in below:
        yield from _write_section(part, inner)


def _write_kinds(kinds: Sequence[tuple[str, type[BaseModel]]], key: str, named_by: str, default: str) -> Iterator[str]:
    """Write one table for models of several kinds. A row that several of them have names these kinds.

    `named_by` is the key that names the kind, and `default` describes its default.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for kind, model in kinds:
        meanings = _read_meanings(model)
        for name, field in model.model_fields.items():
            if name != named_by:
                row = f"{_describe_values(field, f'{key}.{name}')} | {_describe_default(field)} | {meanings[name]}"
                found.setdefault((name, row), []).append(kind)
    yield from (f"| key | `{named_by}` | values | default | meaning |", "|---|---|---|---|---|")
    every = [kind for kind, _ in kinds]
    yield f"| `{named_by}` | all | {', '.join(f'`{kind}`' for kind in every)} | {default} | The kind. |"
    for (name, row), having in found.items():
        yield f"| `{name}` | {'all' if having == every else ', '.join(f'`{kind}`' for kind in having)} | {row} |"


def _read_meanings(model: type[BaseModel]) -> dict[str, str]:
    """Read the first sentence below each attribute in the source of a model and of the models that it extends."""
    found = {}
    for parent in reversed([one for one in model.__mro__ if issubclass(one, BaseModel) and one is not BaseModel]):
        (definition,) = ast.parse(dedent(inspect.getsource(parent))).body
        assert isinstance(definition, ast.ClassDef)
        for node, below in pairwise(definition.body):
            match node, below:
                case ast.AnnAssign(), ast.Expr(ast.Constant(str(text))):
                    found[ast.unparse(node.target)] = _cut_sentence(text)
    return found


def _describe_values(field: FieldInfo, key: str) -> str:
    """Describe the values of a field: its type, or its limits, which are whole for whole numbers.

    A default of null is not named as a value.
    """
    found = dict(limit for one in field.metadata for limit in _find_limits(one))
    parts = _list_alternatives(field.annotation)
    if field.default is None:
        parts = [part for part in parts if part is not NoneType]
    if found.keys() == {"at least", "at most"} and {int, float} & {*parts}:
        return "–".join(f"{int(value) if int in parts else float(value):,}" for value in found.values())
    types = " or ".join(_describe_type(part, key) for part in parts)
    return ", ".join([types, *(f"{name} {value:,}" for name, value in found.items())])


def _find_limits(constraint: object) -> Iterator[tuple[str, float]]:
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    for attribute, name in {**words, "max_length": "length at most"}.items():
        if (value := getattr(constraint, attribute, None)) is not None and math.isfinite(value):
            yield name, value


def _list_alternatives(annotation: Any) -> list[Any]:
    return list(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else [annotation]


def _describe_type(annotation: Any, key: str) -> str:
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


def _cut_sentence(text: str) -> str:
    """Cut the first sentence of a docstring, as one line for a cell of a table."""
    first, _, _ = re.sub(r"(?<=\.) (?=[A-Z`\[])", "\n", " ".join(text.split())).partition("\n")
    return first.replace("|", "\\|")


if __name__ == "__main__":
    write_pages(Path("docs"))
