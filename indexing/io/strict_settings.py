"""The base of settings that a user writes into a file."""

from pydantic import BaseModel, ConfigDict


class StrictSettings(BaseModel):
    """A part of the settings: no unknown key, no converted value, no infinite number, no change after reading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
