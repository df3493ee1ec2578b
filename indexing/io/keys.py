"""Keys of servers: where they are found, whom they may be sent to, and that they are shown nowhere."""

import logging
import os
import re
import stat
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from yarl import URL

from indexing.errors import UserError

_log = logging.getLogger(__name__)


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


def admit(url: str, what: str) -> None:
    """`UserError` where what opens a server would go to another machine by plain http; `what` is its name."""
    if not is_guarded(url):
        raise UserError(f"{url}: {what} is sent by https or within this machine only, expected an https URL")


def key_for(url: str, default: str, named: str | None = None) -> str | None:
    """The key for an endpoint: in the variable that was named for it, wherever it is, else in `default`.

    The one in `default` may be meant for another endpoint: it goes by https and within this machine only, and a
    warning says where it is not sent. `UserError` for a named variable that holds none.
    """
    if named:
        if (key := secret(named)) is None:
            raise UserError(f"{named}: holds no key for {url}, expected one in the environment")
        return key
    key = secret(default)
    if key and not is_guarded(url):
        _log.warning("%s: is sent no key: %s is not named for it and goes by https alone", url, default)
        return None
    return key


def is_guarded(url: str) -> bool:
    """Whether what is sent to a URL can be read by its server alone: by https, or within this machine."""
    found = URL(url)
    host = found.host or ""
    if found.scheme == "https" or host == "localhost":
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False


def without_key(body: bytes, key: str) -> bytes:
    """What a server says, with `[key]` in place of the key, however often JSON has escaped it.

    A text within JSON may be JSON itself, which is parsed later. So each character of the key is found as itself and
    as `u0073`, after any number of backslashes. Nothing is parsed here: what a server says need not be JSON.
    """
    body = body.replace(key.encode(), b"[key]")
    return _escaped(key).sub(b"[key]", body) if b"\\" in body else body


@cache
def _escaped(key: str) -> re.Pattern[bytes]:
    """Matches the key as any depth of JSON strings may write it; possessive, so that it takes linear time."""
    escapes = r"(?:\\|u005[cC])"
    characters = (
        f"{escapes}++" if one == "\\" else f"{escapes}*+(?:(?i:u00{ord(one):02x})|{re.escape(one)})" for one in key
    )
    return re.compile((r"(?<!\\)(?<!u005[cC])" + "".join(characters)).encode())
