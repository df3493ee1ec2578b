"""Errors that a user can cause. Anything else is a bug and keeps its traceback."""

import re
from collections.abc import Callable
from typing import ClassVar, NoReturn

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
