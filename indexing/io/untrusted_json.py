"""JSON from other programs, checked so that each value that is read can be written again."""

from typing import Any

import orjson

NESTING = 254
"""Levels of lists and objects within each other; the JSON library reads more levels than it writes."""


def parse_json(text: bytes | str) -> Any:
    """The value of a foreign JSON text. `ValueError` if it is not JSON, or if it has more levels than `NESTING`."""
    value = orjson.loads(text)
    if len(text) > 2 * NESTING:
        try:
            orjson.dumps(value)
        except orjson.JSONEncodeError:
            raise ValueError(f"JSON that is nested more than {NESTING} deep") from None
    return value
