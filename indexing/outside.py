"""What others send, made safe to hold: JSON that can be written again, and text that a terminal can be shown."""

from typing import Any

import orjson

NESTING = 254
"""Levels of lists and objects in each other: as deep as JSON is written here; it is read deeper."""
LONGEST_SHOWN = 300
"""Characters of a text that are shown in a message."""


def parse_json(text: bytes | str) -> Any:
    """The value of a JSON text that others wrote. `ValueError` if it is none, or if it is nested beyond `NESTING`."""
    value = orjson.loads(text)
    if len(text) > 2 * NESTING:
        try:
            orjson.dumps(value)
        except orjson.JSONEncodeError:
            raise ValueError(f"JSON that is nested more than {NESTING} deep") from None
    return value


def shown(text: str) -> str:
    """A text that others wrote, in one line of a message: single-spaced, cut, and without control characters."""
    words = " ".join(text[: 100 * LONGEST_SHOWN].split())
    words = words if len(words) <= LONGEST_SHOWN else f"{words[:LONGEST_SHOWN]} ..."
    return "".join(character if character.isprintable() else "\ufffd" for character in words)
