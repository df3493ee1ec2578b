"""Errors that a user can cause. Anything else is a bug and keeps its traceback."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NoReturn


class UserError(Exception):
    """What was found, where, and what would be right; printed without traceback, exit code 1.

    With `waits` it is no error: something has to be done elsewhere before the same command goes on; exit code 3.
    """

    waits: ClassVar[bool] = False


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
