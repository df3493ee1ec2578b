"""Errors that a user can cause. Anything else is a bug and keeps its traceback."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NoReturn

WORDS_LENGTH = 500
"""Characters of what a server says that an error repeats."""

_TEMPORARY = re.compile(r"(?<![^\s/'\"(=])\.([^/\n]+?)(\.\d+)?\.partial\b")
"""The name of a file or folder that is being written, `.NAME.partial` or `.NAME.PROCESS.partial`."""


class UserError(Exception):
    """What was found, where, and what would be right; printed without traceback, exit code 1.

    It names a file that was being written by the name that the file would have got. With `waits` it is no error:
    something has to be done elsewhere before the same command goes on; exit code 3.
    """

    waits: ClassVar[bool] = False

    def __str__(self) -> str:
        return _TEMPORARY.sub(r"\1", super().__str__())


class MissingPackage(UserError):
    """An optional package is needed; the message says how to install it."""


class NotWritten(UserError):
    """A file or folder at `path` that cannot be written, and why, for a caller who knows it by another name."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}")
        self.path, self.reason = path, reason


class BadRecord(UserError):
    """A record, or the rest of a file, that cannot be used; `kind` says why in words that can be counted."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


Report = Callable[[BadRecord], None]
"""Is told of each bad record. If it returns, the record is left out and reading goes on."""


def stop(error: BadRecord) -> NoReturn:
    """The `Report` that ends the reading at the first bad record."""
    raise error


def printable(text: str, most: int = WORDS_LENGTH) -> str:
    """A text of others in one line of an error: cut to `most` characters, `?` for each that a terminal does not show.

    So an error holds neither control bytes, which terminals obey, nor characters that change the direction of a line.
    """
    shown = " ".join(text[: 8 * most].split())
    whole = shown if len(text) <= 8 * most and len(shown) <= most else f"{shown[: most - 1]}…"
    return "".join(letter if letter.isprintable() else "?" for letter in whole)
