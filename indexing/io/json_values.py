"""Values of JSON: parsed from the text of another program, and digested for a key."""

import hashlib
from typing import Any

import orjson

MOST_LEVELS = 254
"""Levels of lists and objects within each other. The JSON library reads more levels than it writes."""


def parse_json(text: bytes | str) -> Any:
    """The value of a foreign JSON text, which `orjson.dumps` can write again.

    `ValueError` if the text is not JSON, or if it has more levels than `MOST_LEVELS`.
    """
    value = orjson.loads(text)
    if len(text) > 2 * MOST_LEVELS:
        try:
            orjson.dumps(value)
        except orjson.JSONEncodeError:
            raise ValueError(f"JSON that is nested more than {MOST_LEVELS} deep") from None
    return value


def digest(value: Any) -> str:
    """A key for a value made of JSON types: the SHA-256 of its canonical form, in hexadecimal."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
