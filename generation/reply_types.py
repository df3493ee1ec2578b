"""Types of replies. A class declares the schema that a model is sent, the check of what it replies, and the defaults.

A schema is strict, while models without it are not, so a check may allow more than its schema: see `Number`, `Maybe`,
`Several` and `ANY_CASE`. An `Asked` bound is part of the schema alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from keystone.generation.structured import read_json, read_objects
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable
from keystone.indexing.io.json_values import read_whole_number

T = TypeVar("T")
P = TypeVar("P", bound="Part")
Bound = int | str | Sequence[int | str]


class Part(BaseModel):
    """An object of a reply. Keys that nobody asked for are left out."""

    model_config = ConfigDict(strict=True, frozen=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Default:
    """Replaces a missing or wrong value by a default one."""

    value: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_default_schema(handler(source), default=self.value, on_error="default")


class _Omit:
    """Leaves a wrong item out of its list."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_default_schema(handler(source), on_error="omit")


class _AnyCase:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        words = {word.casefold(): word for word in get_args(source)}

        def fold(value: Any) -> Any:
            return words.get(value.strip().casefold(), value) if isinstance(value, str) else value

        return core_schema.no_info_before_validator_function(fold, handler(source))


class Asked(dict[str, Bound]):
    """Keywords of a schema, in their order. A text is the name of a value that `make_schema` is given."""


Number = Annotated[int, BeforeValidator(read_whole_number)]
"""A whole number in any form that models write: `2`, `2.0` or `"2"`."""
Maybe = Annotated[T | None, _Default(None)]
"""A value; None if it is missing or wrong."""
Usable = list[Annotated[T, _Omit()]]
"""A list without its wrong items."""
Several = Annotated[Usable[T], _Default([])]
"""A list without its wrong items; empty if there is no list."""
ANY_CASE = _AnyCase()
"""One of several words, in any case of letters and with space around it."""
FILLED = Asked(minItems=1)
"""A list with one item or more."""


def at_most(most: Bound, least: Bound | None = None) -> Asked:
    """Ask for a list of so many items."""
    return Asked(items="", **({} if least is None else {"minItems": least}), maxItems=most)


def make_schema(of: type[Part] | Mapping[str, Any], **values: int) -> dict[str, Any]:
    """Make the JSON schema of an object by its type, or by its keys. `values` are those that `Asked` bounds name."""
    hints = of if isinstance(of, Mapping) else list_hints(of)
    properties = {name: _describe(hint, {}, values) for name, hint in hints.items()}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@cache
def list_hints(of: type[Part]) -> dict[str, Any]:
    """List the keys of a type with their types."""
    return {name: hint for name, hint in get_type_hints(of, include_extras=True).items() if name in of.model_fields}


_NAMES = {str: "string", int: "integer", bool: "boolean"}
_BOUNDS = {"ge": "minimum", "le": "maximum"}


def _describe(hint: Any, asked: Mapping[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        for one in hint.__metadata__:
            if isinstance(one, Asked):
                asked = one
            for limit in one.metadata if isinstance(one, FieldInfo) else ():
                asked = {**asked, **{word: getattr(limit, key) for key, word in _BOUNDS.items() if hasattr(limit, key)}}
        return _describe(inner[0], asked, values)
    if kind in (Union, UnionType):
        return _describe(inner[0], asked, values)
    if kind is Literal:
        return {"type": "string", "enum": list(inner)}
    if isinstance(hint, type) and issubclass(hint, Part):
        return make_schema(hint, **values)
    bounds = {name: values.get(one, one) if isinstance(one, str) else one for name, one in asked.items()}
    if kind is list:
        return {"type": "array"} | bounds | {"items": _describe(inner[0], {}, values)}
    return {"type": _NAMES[hint]} | bounds


def read_parts(reply: Reply, key: str, of: type[P]) -> list[P]:
    """Read the objects in the list under `key`, or in the reply if it is a list. `Unusable` for any other shape."""
    return [check(item, of) for item in read_objects(reply, key)]


def check(value: Any, of: type[P], **values: int) -> P:
    """Check an object. `Unusable` names the first wrong key and what was expected, by the `values` of `make_schema`."""
    try:
        return of.model_validate(value)
    except ValidationError as error:
        key = str(error.errors(include_url=False, include_input=False)[0]["loc"][0])
    expected = _describe(list_hints(of)[key], {}, values)
    words = list(map(str, expected.get("enum", ["true", "false"] if expected["type"] == "boolean" else ())))
    said = f" that is {', '.join(words[:-1])} or {words[-1]}" if words else ""
    if "minimum" in expected:
        said = f" from {expected['minimum']} to {expected['maximum']}"
    raise Unusable(f'it holds no "{key}"{said}')


def read_part(reply: Reply, of: type[P], form: Callable[[dict[str, Any]], bool]) -> P:
    """Read a reply's object, by `check`. If the reply holds several, one of the form that is asked for counts."""
    value = read_json(reply, lambda one: isinstance(one, dict) and form(one))
    return check(value if isinstance(value, dict) else {}, of)
