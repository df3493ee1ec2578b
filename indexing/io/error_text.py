"""The words of a server's error in one printable line, however the server writes it."""

import re
from collections.abc import Mapping
from http.client import responses
from typing import Any

import orjson

from indexing.errors import printable

MOST_CAUSES = 8
"""Causes of an OpenSearch error that the line names."""
LINE_LENGTH = 1_000
"""Characters of the line."""
PAGE_LENGTH = 1_000
"""Bytes that are read of a body that is not JSON, such as a page of HTML."""


def error_text(said: Any) -> str:
    """The words of an error in one line: a body in bytes, a value of its JSON, or a text; "no reason" if it is empty.

    Servers put the words under `error`, `message` or `detail`, also inside each other. OpenSearch puts a `type` and a
    `reason` there and their causes below.
    """
    if isinstance(said, bytes):
        try:
            said = orjson.loads(said)
        except orjson.JSONDecodeError:
            said = re.sub("<[^>]*>", " ", said[:PAGE_LENGTH].decode(errors="replace"))
    while isinstance(said, dict) and (inner := next(filter(_has_words, map(said.get, _PLACES)), None)):
        said = inner
    if isinstance(said, dict) and (causes := _name_causes(said)):
        said = causes
    return (show_value(said, LINE_LENGTH) if said else "") or "no reason"


def refusal_text(status: int, headers: Mapping[str, str], said: Any) -> str:
    """Status and words of a reply that is an error; of a redirect, the place that it leads to."""
    if 300 <= status < 400:
        return f"{status}: leads to {printable(headers.get('Location', 'nowhere'))}, expected the URL it ends at"
    return f"{status}: {error_text(said or responses.get(status))}"


def show_value(value: Any, most: int | None = None) -> str:
    """A value of foreign JSON in one line of an error, cut to `most` characters; a text stands without quotes."""
    if not isinstance(value, str):
        try:
            value = orjson.dumps(value).decode()
        except orjson.JSONEncodeError:
            value = "JSON that is nested too deeply"
    return printable(value, most) if most else printable(value)


_PLACES = ("error", "message", "detail")


def _has_words(value: Any) -> bool:
    return bool(value) and isinstance(value, str | dict | list)


def _name_causes(error: Any) -> str:
    """Type and reason of an OpenSearch error and of its causes, at most `MOST_CAUSES`."""
    found = list[str]()
    while isinstance(error, dict) and len(found) < MOST_CAUSES:
        found.append(": ".join(show_value(error[name]) for name in ("type", "reason") if error.get(name)))
        error = error.get("caused_by")
    if error and not isinstance(error, dict):
        found.append(show_value(error))
    return ": ".join(filter(None, found))
