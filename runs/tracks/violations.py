"""Violations and repairs of submission files; their lines, the parsed lines of any file, and tables as CSV."""

import codecs
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import Repr
from typing import Any, Literal, TypeVar

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import try_json
from keystone.indexing.io.reading import read_bytes, read_json_lines
from keystone.indexing.io.writing import write_whole
from keystone.indexing.types import has_lone_surrogate

T = TypeVar("T")

SUBMISSION_LIMIT_BYTES = 2**30
"""The most bytes of a submission file after decompression."""

Lines = list[tuple[int, str]]
"""Lines with their numbers from 1. Surrogates stand for bytes that are not UTF-8 (PEP 383)."""

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule. Line 0 stands for the whole file. An `error` makes the submission invalid."""

    line: int
    severity: Severity
    kind: str
    """The rule in a few words. Summaries count violations by kind."""
    message: str


@dataclass(frozen=True, slots=True)
class Repair:
    """A change, and its line in the given file."""

    line: int
    message: str


def make_error(kind: str, message: str, line: int = 0) -> Violation:
    """Make a violation that makes the submission invalid."""
    return Violation(line, "error", kind, message)


def make_warning(kind: str, message: str, line: int = 0) -> Violation:
    """Make a violation that the organisers accept."""
    return Violation(line, "warning", kind, message)


def put_on_line(line: int, found: Iterable[Violation]) -> Iterator[Violation]:
    """Put the violations of an object on its line."""
    return (replace(one, line=line) for one in found)


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 80
MOST_SHOWN_CHARACTERS = 200


def shorten_value(value: Any) -> str:
    """Shorten a value of any file for a message: one line, short, without control characters."""
    shown = _SHORT.repr(value)
    return shown if len(shown) <= MOST_SHOWN_CHARACTERS else f"{shown[: MOST_SHOWN_CHARACTERS - 3]}..."


def tell_expected(where: str, expected: str, found: Any) -> str:
    """Tell what was expected at a place, and which value was found there."""
    return f"{where}: expected {expected}, found {shorten_value(found)}"


def read_lines(path: Path) -> Lines:
    """Read all lines of a file (.gz and .zst, too), without line ends and without a byte order mark at the beginning.

    `UserError` for a file that cannot be read or is larger than `SUBMISSION_LIMIT_BYTES`.
    """
    content = read_bytes(path, SUBMISSION_LIMIT_BYTES).tobytes().removeprefix(codecs.BOM_UTF8)
    found = content.decode("utf-8", "surrogateescape").split("\n")
    if found[-1] == "":
        found.pop()
    return [(number, line.rstrip("\r")) for number, line in enumerate(found, start=1)]


def parse_lines(
    path: Path, parse: Callable[[dict[str, Any]], T], records: Iterable[tuple[str, dict[str, Any]]] | None = None
) -> Iterator[tuple[str, T]]:
    """Parse the object on each line, or the `records` of the file that were read already; yields it with its place.

    `UserError` with that place for a line that is no object, and if `parse` raises `ValueError`.
    """
    if records is None:
        records = ((f"{path}:{number}", record) for number, record in read_json_lines(path))
    for place, record in records:
        try:
            one = parse(record)
        except ValueError as error:
            raise UserError(f"{place}: {error}") from error
        yield place, one


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines with the bytes that `read_lines` found. If writing fails, no file is left."""
    with write_whole(path) as out:
        out.write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write rows as CSV with the line ends of its standard. The file appears when it is whole."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    with write_whole(path) as out:
        out.write(text.getvalue().encode("utf-8", "surrogatepass"))


def is_utf8(line: str) -> bool:
    """Whether a line was UTF-8 in its file."""
    return not has_lone_surrogate(line)


def parse_object(line: str) -> dict[str, Any] | None:
    """Parse the JSON object of a line. None if it holds none."""
    record = try_json(line)
    return record if isinstance(record, dict) else None
