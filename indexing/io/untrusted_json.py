"""JSON that others send, made safe to hold: a value that was read can be written again."""

from typing import Any

import orjson

NESTING = 254
"""Levels of lists and objects in each other: as deep as JSON is written here; it is read deeper."""


def parse_json(text: bytes | str) -> Any:
    """The value of a JSON text that others wrote. `ValueError` if it is none, or if it is nested beyond `NESTING`."""
    value = orjson.loads(text)
    if len(text) > 2 * NESTING:
        try:
            orjson.dumps(value)
        except orjson.JSONEncodeError:
            raise ValueError(f"JSON that is nested more than {NESTING} deep") from None
    return value
