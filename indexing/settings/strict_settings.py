"""Settings that a user writes into a file: their base class, and settings that name a row of an open table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError, core_schema


class StrictSettings(BaseModel):
    """A part of the settings. It admits no unknown key, no value of another type, no infinite number and no change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


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
