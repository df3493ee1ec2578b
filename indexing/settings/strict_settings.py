"""The base class of settings that a user writes into a file."""

from pydantic import BaseModel, ConfigDict


class StrictSettings(BaseModel):
    """A part of the settings. It admits no unknown key, no value of another type, no infinite number and no change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
