"""What is wrong in a submission file, and how the lines and values of any file are read and shown."""

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from reprlib import Repr
from typing import Any, Literal

import orjson

from indexing.io.files import read_bytes, written

SUBMISSION_LIMIT_BYTES = 2**30
"""Bytes of a submission file, when it is no longer compressed."""

Lines = list[tuple[int, str]]
"""Lines with their numbers from 1. Bytes that are not UTF-8 are kept as surrogates (PEP 383)."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule; line 0 stands for the whole file. An `error` makes the submission invalid."""

    line: int
    severity: Literal["error", "warning"]
    kind: str
    """The rule, in a few words: what a summary counts."""
    message: str


@dataclass(frozen=True, slots=True)
class Repair:
    """What was changed, and on which line of the file as it was given."""

    line: int
    message: str


def error(line: int, kind: str, message: str) -> Violation:
    """A violation that makes the submission invalid."""
    return Violation(line, "error", kind, message)


def warning(line: int, kind: str, message: str) -> Violation:
    """A violation that the organisers take."""
    return Violation(line, "warning", kind, message)


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def shown(value: Any) -> str:
    """A value of any file in a message: on one line, short, and harmless on a screen."""
    return _SHORT.repr(value)


def read_lines(path: Path) -> Lines:
    """All lines of a file (.gz, .zst too), without their ends and without the byte order mark at its beginning."""
    found = (
        read_bytes(path, SUBMISSION_LIMIT_BYTES)
        .tobytes()
        .removeprefix(codecs.BOM_UTF8)
        .decode("utf-8", "surrogateescape")
        .split("\n")
    )
    if found[-1] == "":
        found.pop()
    return [(number, line.rstrip("\r")) for number, line in enumerate(found, start=1)]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines as they were read; all of it or nothing."""
    with written(path) as out:
        out.write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))


def is_utf8(line: str) -> bool:
    """Whether a line was UTF-8 in its file."""
    return line.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in line)


def json_of(text: str) -> Any:
    """The JSON value of a text; None where it holds none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def object_of(line: str) -> dict[str, Any] | None:
    """The JSON object of a line; None where it holds none."""
    record = json_of(line)
    return record if isinstance(record, dict) else None
