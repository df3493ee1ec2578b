"""Where an endpoint is, and the key that opens it."""

import os
import stat
from pathlib import Path

from yarl import URL

from indexing.errors import UserError


def secret(variable: str, file: Path | None = None) -> str | None:
    """The key in a file, else in an environment variable; None if there is none. It is never part of a message."""
    where: Path | str = variable
    key = os.environ.get(variable, "")
    if file is not None:
        where = file
        try:
            mode = stat.S_IMODE(file.stat().st_mode)
            if mode & 0o177:
                raise UserError(f"{where}: mode {mode:o}, expected 600, so that nobody else can read the key")
            key = file.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"{where}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError:
            raise UserError(f"{where}: not a key: not UTF-8") from None
        if not key.strip():
            raise UserError(f"{where}: is empty, expected a key")
    key = key.strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UserError(f"{where}: not a key: expected one line of ASCII without spaces")
    return key or None


def checked(url: str) -> str:
    """A base URL as it was given; `UserError` if it is none, or holds a password."""
    try:
        found = URL(url)
    except ValueError:
        found = URL()
    if found.user or found.password:
        raise UserError("model URL: holds a user or a password; expected the key in the environment or in a file")
    if found.scheme not in ("http", "https") or not found.host:
        raise UserError(f"{url!r}: not the URL of an endpoint, expected such as http://localhost:8000/v1")
    return url
