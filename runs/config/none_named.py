"""Settings that may be left out by the word `none`: it is read as None once, and written as `none` again."""

from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

NONE = "none"
"""The word for None in files and in errors."""


class NoneNamed:
    """Marks a setting whose value `none` is None in Python.

    `names` are all values that a file may hold, in the order in which an error lists them; without any, the setting
    may be any string.
    """

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema that pydantic asks a mark for."""
        named = core_schema.literal_schema(list(self._names)) if self._names else core_schema.str_schema(strict=True)
        return core_schema.no_info_wrap_validator_function(
            lambda value, validate: None if value is None or (found := validate(value)) == NONE else found,
            named,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: NONE if value is None else value
            ),
        )
