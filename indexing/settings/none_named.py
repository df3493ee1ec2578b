"""Settings with the value `none`: it is read as None, and written as `none` again."""

from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

NONE = "none"
"""The word for None in files and in errors."""


class NoneNamed:
    """Marks a setting whose value `none` is None in Python.

    `names` are all values that a file may hold, in the order in which an error lists them. Without names, the setting
    may be any string.
    """

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
