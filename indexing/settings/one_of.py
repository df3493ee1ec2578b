"""Settings whose values are the names of a table that other packages extend."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError, core_schema


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
