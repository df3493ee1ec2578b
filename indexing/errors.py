"""Every error of Keystone that has a cause outside its code. Anything else is a bug and keeps its traceback.

`retryable` says whether the same attempt may succeed later; the code that tries again asks only this attribute.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NoReturn

PRINTED_LENGTH = 500

_TEMPORARY = re.compile(r"(?<![^\s/'\"(=])\.([^/\n]+?)(\.\d+)?\.partial\b")
"""The name of a file or folder that is being written, `.NAME.partial` or `.NAME.PROCESS.partial`."""


class UserError(Exception):
    """An error that a user can cause: it says what was found, where, and what would be right.

    The command line prints it without a traceback and exits with code 1. The message names a file that was being
    written by the name that the file would have got. If `waits` is true, the command exits with code 3. A person or
    another program then has to do something before the same command can go on.
    """

    waits: ClassVar[bool] = False
    retryable: bool = False

    def __str__(self) -> str:
        return _TEMPORARY.sub(r"\1", super().__str__())


class MissingPackage(UserError):
    """An optional package is needed; the message says how to install it."""


class NotFound(UserError):
    """The index lacks a document or a segment; the message names it."""


class NoCitedTexts(UserError):
    """An index has none of the texts that answers cite."""


class NotRecorded(UserError):
    """A request has no recorded reply; the message names its step and its key."""


class Unneeded(Exception):
    """Raised in the block of `partial_folder` if the folder is not needed after all: the block ends and leaves none."""


class NotWritten(UserError):
    """The file or folder at `path` cannot be written for this `reason`; a caller may know it by another name."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}")
        self.path, self.reason = path, reason


class NoVerdict(UserError):
    """The model gave no verdict on any battle."""


class BadRecord(UserError):
    """A record, or the rest of a file, cannot be used; `kind` is the reason in words that can be counted."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Unreached(UserError):
    """A server gave no whole reply. If `late` is true, it took the request and did not answer in time."""

    retryable = True

    def __init__(self, message: str, late: bool = False) -> None:
        super().__init__(message)
        self.late = late


class WrongReply(UserError):
    """A server's reply has another form, or holds more, than the request allows."""

    retryable = True


class UnknownForm(WrongReply):
    """A reply of a form that no server is known to have. The next try most likely gets the same form."""


class TurnedAway(Exception):
    """A busy server turned a request away; it may ask for `wait` seconds. Or it was not `reached` at all."""

    def __init__(self, message: str, wait: float | None = None, reached: bool = True) -> None:
        super().__init__(message)
        self.wait, self.reached = wait, reached


class Refused(UserError):
    """A server declines a request with the HTTP status `status`; it may ask for a pause of `pause_s` seconds."""

    def __init__(self, message: str, status: int, retryable: bool = False, pause_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retryable, self.pause_s = status, retryable, pause_s


class ClusterRefused(UserError):
    """An answer of a cluster of OpenSearch with the status of an error, and its reason."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        super().__init__(f"{url}: refused with status {reason}")
        self.status, self.reason = status, reason


class TooLarge(UserError):
    """A reply has more bytes than any answer to the request can have."""


class Untrusted(UserError):
    """The certificate of a server is not trusted."""


class TooDeep(UserError):
    """A server gives fewer hits than the search asked for."""


class GaveUp(UserError):
    """No request to a cluster has succeeded for too long."""


class TextRefused(UserError):
    """An embedding model accepts no part of the text at `position`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


class Waits(UserError):
    """Replies of a language model are made elsewhere; the message names the file of the requests."""

    waits = True


class OverNested(ValueError):
    """A JSON text has more levels than Keystone reads."""


class Unusable(ValueError):
    """A step cannot read a model's reply; the message says why, so that the model can repair it."""

    retryable = True


class UnclearTrack(UserError):
    """A file whose format fits no track, or tracks of several forms."""


Report = Callable[[BadRecord], None]
"""Receives each bad record. If it returns, the reader leaves out the record and goes on."""


def stop(error: BadRecord) -> NoReturn:
    """Raise the error: the `Report` that ends the reading at the first bad record."""
    raise error


def printable(text: str, most: int = PRINTED_LENGTH) -> str:
    """A foreign text as one line of at most `most` characters, with `?` for each character that a terminal hides.

    So an error holds neither control bytes, which terminals obey, nor characters that change the direction of a line.
    """
    shown = " ".join(text[: 8 * most].split())
    whole = shown if len(text) <= 8 * most and len(shown) <= most else f"{shown[: most - 1]}…"
    return "".join(letter if letter.isprintable() else "?" for letter in whole)
