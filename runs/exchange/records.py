"""Reading JSON records of any tool: JSONL, or one JSON document with a list; values that are not kept."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import AliasChoices

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import parse_json, parse_objects, try_json
from keystone.indexing.io.reading import read_bytes, read_json_lines, read_text_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.types import describe_id, is_id
from keystone.runs.evaluation.nuggets.cited import Citation
from keystone.runs.exchange.types import Handover, Kind
from keystone.runs.parts import Part
from keystone.runs.tracks.violations import shorten_value

T = TypeVar("T")
P = TypeVar("P", bound=Part)

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


def read_form(
    path: Path,
    part: type[P],
    make: Callable[[P, str, dict[str, Any]], T],
    show: Callable[[dict[str, Any], T], Any] = lambda record, _: record,
) -> tuple[list[T], Counter[str]]:
    """Read each record of a file, and count what `part`, its type, does not keep of it, as `count_unread` does.

    `make` makes a value from a record's part, its place and itself. `show` makes of the record and this value what is
    counted. `UserError` with the place of a record that the part or `make` refuses.
    """
    found, unread = list[T](), Counter[str]()
    for place, record in read_records(path):
        try:
            found.append(make(part.read(record), place, record))
        except ValueError as error:
            raise UserError(f"{place}: {error}") from error
        count_unread(show(record, found[-1]), part, unread)
    return found, unread


def count_unread(value: Any, part: type[Part], found: Counter[str], path: str = "") -> None:
    """Count the values of a record by their paths, such as `candidates[].doc.url`, unless a part declares their key.

    Of several keys for a value, the first one counts as kept, and those with the same value. All is kept of a value
    that is no part, and of a part that allows `extra` keys. Empty values do not count.
    """
    if isinstance(value, list):
        for one in value:
            count_unread(one, part, found, f"{path}[]")
    elif isinstance(value, dict):
        kept, before = _list_kept(part), f"{path}." if path else ""
        for key, one in value.items():
            if (rule := kept.get(key, _UNKNOWN)) is None:
                continue
            firsts, keyed, inner = rule
            first = next((value[other] for other in firsts if value.get(other) is not None), one)
            if rule is _UNKNOWN or (first is not one and str(first) != str(one)):
                if one not in (None, "", [], {}):
                    found[before + key] += 1
            elif inner:
                listed = list(one.values()) if keyed and isinstance(one, dict) else one
                count_unread(listed, inner, found, before + key)


_Rule = tuple[list[str], bool, type[Part] | None]
_UNKNOWN: _Rule = ([], False, None)


@cache
def _list_kept(of: type[Part]) -> dict[str, _Rule | None]:
    """List the keys of a part that may be kept: the keys that go first, and the part that the value holds.

    The truth value tells whether the value may have keys of its own for its parts. None: it is kept in any case.
    """
    names, fields = list_keys(of), of.model_fields
    keys = {name: [key for key in names if names[key] == name] for name in fields if not fields[name].exclude}
    listed = ((own, key, _find_part(fields[name].annotation)) for name, own in keys.items() for key in own)
    return {key: (own[:n], *found) if n or found[1] else None for own, key, found in listed for n in [own.index(key)]}


def _find_part(hint: Any) -> tuple[bool, type[Part] | None]:
    if isinstance(hint, type) and issubclass(hint, Part):
        return False, None if hint.model_config.get("extra") == "allow" else hint
    found = next((one for one in map(_find_part, get_args(hint)) if one[1]), (False, None))
    return found[0] or get_origin(hint) is dict, found[1]


@cache
def list_keys(of: type[Part]) -> dict[str, str]:
    """List the keys that a part reads, each with the name of its field."""
    aliases = ((name, field.validation_alias) for name, field in of.model_fields.items())
    listed = ((name, alias.choices if isinstance(alias, AliasChoices) else [name]) for name, alias in aliases)
    return {str(key): name for name, keys in listed for key in keys}


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
