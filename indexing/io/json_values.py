"""Values of JSON: parsed from the text of another program, and digested for a key."""

import codecs
import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

from keystone.indexing.errors import OverNested

MOST_LEVELS = 254
"""Levels of lists and objects within each other. The JSON library reads more levels than it writes."""


LARGEST_EXACT = 2**53
"""The largest whole number up to which floating-point numbers hold each one."""

_BRACKETS = r'[-+.,:\s\dEaeflnrstu]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"?[-+.,:\s\dEaeflnrstu]*+)*+([\[{]*+)([\]}]*+)'
"""Values and strings up to the next brackets, then those that open, then those that close."""
_IN_TEXT = re.compile(_BRACKETS, re.DOTALL)
_WHOLE = re.compile(r"([+-]?[0-9]{1,18})(?:\.0*)?")
_IN_BYTES = re.compile(_BRACKETS.encode(), re.DOTALL)
_NOT_FINITE = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|-?\b(?:NaN|Infinity)\b', re.DOTALL)
"""A string, even one without an end, so that the search is linear; or a number that JSON does not have."""


def parse_json(text: bytes | str) -> Any:
    """Parse JSON text from elsewhere. `ValueError`, or its kind `OverNested` for more levels than `MOST_LEVELS`."""
    check_nesting(text)
    return orjson.loads(text)


def try_json(text: bytes | str) -> Any:
    """The value of a JSON text, by `parse_json`; None if it is not JSON."""
    try:
        return parse_json(text)
    except ValueError:
        return None


def parse_reply(body: bytes) -> Any:
    """The value of a server's JSON, by `parse_json`.

    A byte order mark is dropped. NaN and infinite numbers become null: servers write them for log-probabilities of
    impossible tokens and for damaged vectors, although JSON has none.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        return parse_json(body)
    except orjson.JSONDecodeError:
        with suppress(orjson.JSONDecodeError):
            return parse_json(_NOT_FINITE.sub(lambda found: found[1] or b"null", body))
        raise


def parse_objects(text: bytes | str) -> list[dict[str, Any]] | None:
    """Objects that follow one another in a text, as RAGTIME's topics of 2026 do; None if it holds other things."""
    text = text.rstrip()
    found, end = [], 0
    try:
        while end < len(text):
            start, end = end, check_nesting_from(text, end)
            found.append(parse_json(text[start:end]))
    except ValueError:
        return None
    return found if all(isinstance(one, dict) for one in found) else None


def list_inner(record: Mapping[str, Any], text_key: str | None = None) -> list[tuple[str, Any]]:
    """The records of an object of records, each with its place: in a list under a single key, or each under its id.

    `text_key` is the key of the text of records that are strings, if they may be. Empty for any other object.
    """
    values = list(record.values())
    if len(values) == 1 and isinstance(values[0], list):
        return [(f"object {number}", value) for number, value in enumerate(values[0], 1)]
    if text_key and all(isinstance(value, str) for value in values):
        return [(f"key {key!r}", {"id": key, text_key: value}) for key, value in record.items()]
    if all(isinstance(value, dict) for value in values):
        return [(f"key {key!r}", {"id": key, **value}) for key, value in record.items()]
    return []


def check_nesting(text: bytes | str) -> None:
    """Raise `OverNested` for a JSON text of more than `MOST_LEVELS`, with which a recursive parser could crash."""
    openings = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if openings > MOST_LEVELS:
        check_nesting_from(text, 0)


def check_nesting_from(text: bytes | str, start: int) -> int:
    """Raise `OverNested` for a value at `start` of more than `MOST_LEVELS`; returns where its JSON ends."""
    match: Any = _IN_TEXT.match if isinstance(text, str) else _IN_BYTES.match
    levels, end = 0, start
    while True:
        piece = match(text, end)
        opened, closed, end = piece.start(1), piece.start(2), piece.end()
        levels += closed - opened
        if levels > MOST_LEVELS:
            raise OverNested(f"JSON that is nested more than {MOST_LEVELS} deep")
        levels -= end - closed
        if levels <= 0 or end == opened:
            return int(end)


def read_whole_number(value: Any) -> int | None:
    """The whole number in `2`, `2.0` or `"2"`, as models and servers write it; None if it is not a whole number."""
    if isinstance(value, str):
        return int(found[1]) if (found := _WHOLE.fullmatch(value.strip())) else None
    if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_EXACT:
        return int(value)
    return value if type(value) is int else None


def digest(value: Any) -> str:
    """A key for a value made of JSON types: the SHA-256 of its canonical form, in hexadecimal."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
