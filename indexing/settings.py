"""Settings that a user writes into a file: their base class, `none` as a word for None, and rows of open tables.

A setting with the value `none` is read as None, and written as `none` again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, SerializerFunctionWrapHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticKnownError, core_schema


class StrictSettings(BaseModel):
    """A part of the settings. It admits no unknown key, no value of another type, no infinite number and no change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def leave_out(settings: BaseModel, handler: SerializerFunctionWrapHandler, newer: Sequence[str]) -> dict[str, Any]:
    """Write settings without those of the `newer` ones that have their default, so that older files and keys hold."""
    found: dict[str, Any] = handler(settings)
    return {
        name: value
        for name, value in found.items()
        if name not in newer or getattr(settings, name) != type(settings).model_fields[name].default
    }


Settings = TypeVar("Settings", bound=StrictSettings)


def read_settings(model: type[Settings], value: Any, row: str) -> Settings:
    """Read the settings of a row of an open table. `ValidationError` has the name of the row before its keys."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = [
            InitErrorDetails(type=one["type"], loc=(row, *one["loc"]), input=one["input"], ctx=one.get("ctx", {}))
            for one in error.errors()
        ]
        raise ValidationError.from_exception_data(error.title, found) from error


@dataclass(frozen=True, slots=True)
class OneOf:
    """Marks a setting that is one of the names that `list_names` gives when the setting is read."""

    list_names: Callable[[], Sequence[str]]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        """Make the schema of the setting for pydantic. Its error is that of a `Literal` with the same names."""
        return core_schema.no_info_plain_validator_function(self._check)

    def _check(self, value: Any) -> Any:
        if value in (names := self.list_names()):
            return value
        *others, last = map(repr, names)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})


NONE = "none"
"""The word for None in files and in errors."""


class NoneNamed:
    """Marks a setting whose value `none` is None. `names` are all values, for errors too; without, any string."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        """Make the schema of the setting for pydantic."""
        schema = core_schema.literal_schema(list(self._names)) if self._names else core_schema.str_schema(strict=True)
        return core_schema.no_info_wrap_validator_function(
            lambda value, validate: None if value is None or (found := validate(value)) == NONE else found,
            schema,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: NONE if value is None else value
            ),
        )
