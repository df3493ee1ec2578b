"""Reading JSON records of any tool: JSONL, or one JSON document with a list; checks of values; keys that are not kept.

A `ValueError` names the key. `read_records` adds file and line to it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import parse_json, parse_objects, try_json
from keystone.indexing.io.reading import read_bytes, read_json_lines, read_text_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.types import describe_id, is_id
from keystone.runs.evaluation.nuggets.cited import Citation
from keystone.runs.exchange.types import Handover, Kind
from keystone.runs.tracks.answer_files import is_integer, is_score
from keystone.runs.tracks.violations import shorten_value

T = TypeVar("T")

DOCUMENT_LIMIT_BYTES = 2**30
"""The most bytes of a file that is one JSON document."""


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSONL file, or of a file that is one JSON array or objects in a row, each with its place.

    `UserError` with file and line, or with file and number of the object, for anything else.
    """
    numbered = ((number, line) for number, line in read_text_lines(path) if line.strip())
    first = next(numbered, None)
    if first is None:
        raise UserError(f"{path}: holds no line, expected JSON objects")
    opening = first[1].lstrip()
    if opening.startswith("[") or (opening.startswith("{") and try_json(opening) is None):
        yield from _read_document(path)
        return
    for number, record in read_json_lines(path):
        yield f"{path}:{number}", record


def _read_document(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    content = read_bytes(path, DOCUMENT_LIMIT_BYTES).tobytes().removeprefix(b"\xef\xbb\xbf")
    try:
        value = parse_json(content)
    except ValueError as error:
        value = parse_objects(content)
        if value is None:
            raise UserError(f"{path}: not JSON: {error}") from error
    records = value if isinstance(value, list) else [value]
    if not records:
        raise UserError(f"{path}: holds an empty list, expected JSON objects")
    for number, record in enumerate(records, 1):
        place = f"{path}: object {number}"
        if not isinstance(record, dict):
            raise UserError(f"{place}: expected a JSON object, found {shorten_value(record)}")
        yield place, record


class Record(dict[str, Any]):
    """An object of JSON whose values are checked as they are got. `where` leads to it in messages: `items[0].`.

    Each method raises `ValueError` for a value of another type.
    """

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        super().__init__(values)
        self.where = where

    def _get(self, key: str, expected: str, fits: Callable[[Any], bool]) -> Any:
        value = self.get(key)
        if value is not None and not fits(value):
            raise ValueError(f"{self.where}{key}: expected {expected}, found {shorten_value(value)}")
        return value

    def get_object(self, key: str) -> "Record":
        """Get the object under a key; empty if there is none."""
        found = self._get(key, "an object", lambda value: isinstance(value, dict))
        return Record(found or {}, f"{self.where}{key}.")

    def get_list(self, key: str) -> list[Any]:
        """Get the list under a key; empty if there is none."""
        return self._get(key, "a list", lambda value: isinstance(value, list)) or []

    def get_objects(self, key: str, required: bool = False) -> "Iterator[Record]":
        """Get the objects in the list under a key. `ValueError`, too, if a `required` key is missing."""
        if required and key not in self:
            raise ValueError(f"{self.where}{key}: expected a list, found the keys {', '.join(self) or 'none'}")
        for number, one in enumerate(self.get_list(key)):
            place = f"{self.where}{key}[{number}]"
            if not isinstance(one, dict):
                raise ValueError(f"{place}: expected an object, found {shorten_value(one)}")
            yield Record(one, f"{place}.")

    def get_string(self, key: str) -> str:
        """Get the text under a key; empty if there is none."""
        return self._get(key, "a text", lambda value: isinstance(value, str)) or ""

    def get_name(self, *keys: str) -> str:
        """Get the id under the first of these keys that there is; empty if there is none. An integer becomes text."""
        key = next((key for key in keys if self.get(key) is not None), None)
        return "" if key is None else _parse_id(self[key], f"{self.where}{key}")

    def get_ids(self, key: str) -> tuple[str, ...]:
        """Get the ids in the list under a key."""
        values = enumerate(self.get_list(key))
        return tuple(_parse_id(value, f"{self.where}{key}[{place}]") for place, value in values)

    def get_number(self, key: str) -> float | None:
        """Get the finite number under a key, or None."""
        value = self._get(key, "a number", lambda value: is_score(value) and isfinite(value))
        return None if value is None else float(value)

    def get_integer(self, key: str) -> int | None:
        """Get the whole number under a key, or None."""
        return self._get(key, "a whole number", is_integer)  # type: ignore[no-any-return]


def _parse_id(value: Any, where: str) -> str:
    if not isinstance(value, str) and not is_integer(value):
        raise ValueError(f"{where}: expected an id, found {shorten_value(value)}")
    return str(value)


def read_form(
    path: Path,
    parse: Callable[[Record, str], T],
    kept: Iterable[str],
    show: Callable[[dict[str, Any]], Any] = lambda record: record,
) -> tuple[list[T], Counter[str]]:
    """Parse each record of a file with its place, and count what is not `kept` of it, as `count_unread` does.

    `show` makes the value that is counted from a record. `UserError` with the place of a record that `parse` refuses.
    """
    found = list[T]()

    def parse_all() -> Iterator[Any]:
        for place, record in read_records(path):
            try:
                found.append(parse(Record(record), place))
            except ValueError as error:
                raise UserError(f"{place}: {error}") from error
            yield show(record)

    unread = count_unread(parse_all(), kept)
    return found, unread


def count_unread(records: Iterable[Any], kept: Iterable[str]) -> Counter[str]:
    """Count the values of records under paths such as `candidates[].doc.url`, unless a path in `kept` leads to them.

    All that is below a kept path is kept. Empty values do not count.
    """
    kept = frozenset(kept)
    above = {path[: match.start()] for path in kept for match in re.finditer(r"\.|\[\]", path)} | {""}
    inner = above | kept
    found: Counter[str] = Counter()

    def walk(value: Any, path: str) -> None:
        if path in kept or value in (None, "", [], {}):
            return
        if path in above and isinstance(value, dict):
            for key, one in value.items():
                walk(one, f"{path}.{key}" if path else key)
        elif f"{path}[]" in inner and isinstance(value, list):
            for one in value:
                walk(one, f"{path}[]")
        else:
            found[path] += 1

    for record in records:
        walk(record, "")
    return found


def drop_taken(record: Mapping[str, Any], taken: Mapping[str, str]) -> dict[str, Any]:
    """Drop the keys of `taken` that are empty or hold the value taken of them. Those with another value stay."""
    return {
        key: value
        for key, value in record.items()
        if key not in taken or (value is not None and str(value) not in ("", taken[key]))
    }


def drop_repeated(citations: Iterable[Citation], lost: Counter[str]) -> tuple[Citation, ...]:
    """Keep the first of the equal citations of a sentence. `lost` counts the others."""
    listed = list(citations)
    kept = tuple(dict.fromkeys(listed))
    lost["citations repeated in their sentence"] += len(listed) - len(kept)
    return kept


def check_id(name: str, what: str, place: str) -> str:
    """Return an id that can stand in a column of a TREC file. `UserError` for another one."""
    if not is_id(name):
        found = shorten_value(name) if name else "none"
        raise UserError(f"{place or 'the input'}: {what}: expected {describe_id(name)}, found {found}")
    return name


def fill(**values: Any) -> dict[str, Any]:
    """Make an object of the values that are there: neither None nor empty."""
    return {key: value for key, value in values.items() if value is not None and value != "" and value != {}}


def write_each(kind: Kind, encode: Callable[[Any], dict[str, Any]]) -> Callable[[Path, Handover], None]:
    """Make the writer of a form that has an object a line, which `encode` makes of each item of a kind of content."""
    return lambda path, content: write_json_lines(path, map(encode, getattr(content, kind)))


def has(*keys: str, any_of: Sequence[str] = ()) -> Callable[[Mapping[str, Any]], bool]:
    """Make a test of whether a record has all of these keys, and any of those."""
    return lambda record: all(key in record for key in keys) and (not any_of or any(key in record for key in any_of))
