"""The text of a server's error in one printable line, in whichever form the server sends it."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson

from keystone.indexing.errors import OverNested, printable
from keystone.indexing.io.json_values import parse_json

MOST_CAUSES = 8
PHRASES = {status.value: status.phrase for status in HTTPStatus}
LINE_CHARACTERS = 1_000
MEMBERS_CHARACTERS = 200
PAGE_BYTES = 1_000
"""If a body is not JSON, such as a page of HTML, its first bytes are read, at most this number."""


def describe_error(error: Any) -> str:
    """The text of an error in one line, or "no reason" if the error is empty.

    `error` is a body in bytes, a value of its JSON, or a text. Servers put the text under `error`, `message` or
    `detail`, also inside each other, and some put the error into a list. OpenSearch puts a `type` and a `reason` there,
    and their causes below.
    """
    if isinstance(error, bytes):
        try:
            error = parse_json(error)
        except OverNested as deep:
            error = str(deep)
        except ValueError:
            error = re.sub("<[^>]*>", " ", error[:PAGE_BYTES].decode(errors="replace"))
    if isinstance(error, list) and len(error) == 1:
        error = error[0]
    while isinstance(error, dict) and (inner := next(filter(_holds_text, map(error.get, _TEXT_KEYS)), None)):
        error = inner
    if isinstance(error, dict) and (causes := _name_causes(error)):
        error = causes
    return (show_value(error, LINE_CHARACTERS) if error else "") or "no reason"


def describe_refusal(status: int, headers: Mapping[str, str], error: Any) -> str:
    """Status and text of a reply that is an error; for a redirect, its status and target."""
    if 300 <= status < 400:
        return f"{status}: leads to {printable(headers.get('Location', 'nowhere'))}, expected the URL it ends at"
    return f"{status}: {describe_error(error or PHRASES.get(status))}"


def show_value(value: Any, most: int | None = None) -> str:
    """A value of foreign JSON in one line of an error, cut to `most` characters; a text has no quotes."""
    if not isinstance(value, str):
        try:
            value = orjson.dumps(value).decode()
        except orjson.JSONEncodeError:
            value = "JSON that is nested too deeply"
    return printable(value, most) if most else printable(value)


def name_members(value: Any) -> str:
    """The members of an object of a wrong form, or its error, as the end of a message; empty for other values."""
    if not isinstance(value, dict):
        return ""
    if value.get("error") or tells_error(value):
        return f", but an error: {describe_error(value)}"
    names = ", ".join(f"type {show_value(value[key])}" if key == "type" else str(key) for key in value)
    return f", but {show_value(names, MEMBERS_CHARACTERS) or 'nothing'}"


def tells_error(value: Mapping[str, Any]) -> bool:
    """Whether an object without an `error` tells one all the same, by a text under another key."""
    return any(isinstance(value.get(key), str) and value[key] for key in _TEXT_KEYS)


_TEXT_KEYS = ("error", "message", "detail", "error_msg", "msg")


def _holds_text(value: Any) -> bool:
    return bool(value) and isinstance(value, str | dict | list)


def _name_causes(error: Any) -> str:
    """Type and reason of an OpenSearch error and of its causes, of at most `MOST_CAUSES` in all."""
    found = list[str]()
    while isinstance(error, dict) and len(found) < MOST_CAUSES:
        found.append(": ".join(show_value(error[name]) for name in ("type", "reason") if error.get(name)))
        error = error.get("caused_by")
    if error and not isinstance(error, dict):
        found.append(show_value(error))
    return ": ".join(filter(None, found))
