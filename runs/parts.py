"""Records of any tool, declared as types: their keys, and the check, the default and the place of each value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Self, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from keystone.runs.tracks.answer_files import is_integer
from keystone.runs.tracks.violations import shorten_value

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Missing:
    """Stands for a value that a record must have. One that is under any of several keys names them."""

    keys: tuple[str, ...] = ()


REQUIRED: Any = Field(_Missing(), validate_default=True)
"""The default of a key that a record must have."""


def first_of(*keys: str, default: Any = "", exclude: bool = False) -> Any:
    """Declare a value that is under the first of these keys that has one. With `...`, a record must have it.

    No key of an `exclude`d value counts as kept.
    """
    filled: Any = _Missing(keys) if default is ... else default
    return Field(filled, validate_default=default is ..., validation_alias=AliasChoices(*keys), exclude=exclude)


class Part(BaseModel):
    """A record, or an object within one. Null is a missing value. Keys that nobody declares are left out."""

    model_config = {"strict": True, "frozen": True, "allow_inf_nan": False}

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        has_null = isinstance(value, dict) and None in value.values()
        return {key: one for key, one in value.items() if one is not None} if has_null else value

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """Read a record. `ValueError` names the key of its first fault, and the value expected and found."""
        try:
            return cls.model_validate(record)
        except ValidationError as error:
            raise ValueError(_describe_fault(error, record)) from error


_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "model_type": "an object",
    "dict_type": "an object",
    "literal_error": "one of {expected}",
}
"""What our messages expect, by the kind of pydantic's error."""


def _describe_fault(error: ValidationError, record: Mapping[str, Any]) -> str:
    first = error.errors(include_url=False)[0]
    loc, value = first["loc"], first["input"]
    choices = str(first.get("ctx", {}).get("expected", "")).replace("'", "").replace(" or ", ", ")
    expected, found = _EXPECTED.get(first["type"], first["msg"]).replace("{expected}", choices), shorten_value(value)
    if isinstance(value, _Missing):
        beside: Any = reduce(lambda inner, key: inner[key], loc[:-1], record)  # type: ignore[index]
        found = f"the keys {', '.join(key for key, one in beside.items() if one is not None) or 'none'}"
        loc, expected = (loc[:-1], f"{expected} under {' or '.join(value.keys)}") if value.keys else (loc, expected)
    names = (f".{one}" if isinstance(one, str) and one.isidentifier() else f"[{shorten_value(one)}]" for one in loc)
    where = f"{''.join(names).removeprefix('.')}: " if loc else ""
    if first["type"] == "value_error":
        return f"{where}{first['ctx']['error']}"
    return f"{where}expected {expected}, found {found}"


def checked(expected: str, fits: Callable[[Any], bool], read: Callable[[Any], Any] = lambda value: value) -> Any:
    """Declare a value by a test, and by what is read of a value that fits."""

    def check(value: Any) -> Any:
        if not fits(value):
            raise PydanticCustomError("unfit", expected)
        return read(value)

    return BeforeValidator(check)


def filled(expected: str) -> Any:
    """Declare a text that is not blank."""
    return checked(expected, lambda value: isinstance(value, str) and bool(value.strip()))


def text_as(*keys: str) -> Any:
    """Declare that a text may stand for an object with this text under this key, or under keys within each other."""

    def read(value: Any) -> Any:
        for key in reversed(keys) if isinstance(value, str) else ():
            value = {key: value}
        return value

    return checked("a text or an object", lambda value: isinstance(value, str | dict), read)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) or is_integer(value)


Id = Annotated[str, checked("an id", _is_id, str)]
"""A text, or a whole number, which becomes text."""
Name = Annotated[str, checked("an id", lambda value: _is_id(value) and value != "", str)]
"""An id that is not empty."""
Listed = Annotated[tuple[T, ...], Field(strict=False)]
_MANY = checked(
    "a list or an object", lambda v: isinstance(v, list | dict), lambda v: v if type(v) is dict else dict(enumerate(v))
)
Objects = Annotated[dict[Any, T], _MANY]
"""Objects in a list, or in an object under keys of their own; here by their places or keys."""
