"""Keys of servers: reading a key, deciding which server may receive it, and removing it from replies."""

import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.indexing.io.system import read_open_mode

OPENAI_KEY = "OPENAI_API_KEY"
"""The environment variable with the key of servers of OpenAI's protocols, if the user names no other variable."""

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {"PYSERINI_API_KEY": ("PYSERINI_API_TOKEN", "CASTORINI_API_TOKEN")}
"""The names that others give to an environment variable of ours: those of TREC RAG 2026's skills, and of RAGDoll."""

_PLACEHOLDER = re.compile(r"(?!sk-)[A-Za-z_-]{1,15}|.{1,7}")
"""A word that may stand in place of a key, such as `none`, `EMPTY` or `lm-studio`, and that a reply may hold, too."""

_log = logging.getLogger(__name__)


def read_key(variable: str, file: Path | None = None) -> str | None:
    """The key in `file` if one is given, else in the environment variable; None if the variable is empty or unset.

    `UserError` if other users may read the file, or if it holds no key of one ASCII line. No message holds the key.
    """
    where: Path | str = variable
    key = os.environ.get(variable, "")
    if file is not None:
        where = file
        try:
            if mode := read_open_mode(file):
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


def find_key(variable: str) -> tuple[str, str] | None:
    """The name and key of a variable, or of its first `OTHER_NAMES` that is set, or None. `UserError` as `read_key`."""
    found = ((name, read_key(name)) for name in (variable, *OTHER_NAMES.get(variable, ())))
    return next(((name, key) for name, key in found if key), None)


def admit(url: str) -> None:
    """Raise `UserError` if credentials would go to another machine by plain http."""
    if not is_guarded(url):
        raise UserError(f"{url}: credentials are sent by https or within this machine only, expected an https URL")


@dataclass(frozen=True, slots=True)
class Key:
    """The secret to send to one server, or None; and a note if a secret exists that may not go there."""

    secret: str | None = field(repr=False)
    note: str = ""


def choose_key(
    url: str,
    default: str,
    variable: str | None = None,
    file: Path | None = None,
    required: bool = True,
    by_https: bool = False,
) -> Key:
    """The key for one server: in `file`, else in the environment variable `variable`, else as `find_key` has `default`.

    If the user names a file or a variable, its key is meant for this server and goes there in any case. The key in
    `default` may be meant for another server. It goes by https or within this machine only; with `by_https`, not even
    within this machine, where a forwarder may listen. Otherwise a warning and the note say that it stays. `UserError`
    if `required` is true and the variable that the user names holds no key.
    """
    if variable or file:
        named = read_key(variable or default, file)
        if variable and required and named is None:
            raise UserError(f"{variable}: holds no key for {url}, expected one in the environment")
        return Key(named)
    found = find_key(default)
    if found is None or goes_by_https(url) or (not by_https and is_guarded(url)):
        return Key(found[1] if found else None)
    note = f"{url}: is sent no key: {found[0]} is not named for it and goes by https alone"
    _log.warning("%s", note)
    return Key(None, note)


def goes_by_https(url: str) -> bool:
    """Whether requests to a URL go by https."""
    return url.lower().startswith("https:")


def is_guarded(url: str) -> bool:
    """Whether nobody but the server at a URL can read a request: it goes by https, or stays within this machine."""
    from yarl import URL

    if goes_by_https(url):
        return True
    with suppress(ValueError):  # it names another host, or is not a URL: the request says so
        host = URL(url).host or ""
        return host == "localhost" or ip_address(host).is_loopback
    return False


def remove_key(body: bytes, key: str, spare_words: bool = False) -> bytes:
    """The body of a reply with `[key]` in place of the key, even if JSON has escaped the key several times.

    With `spare_words`, a word that local servers take for a key, such as `ollama`, stays, since a reply may hold it by
    chance. In messages no key stays, because a user's own secret may be such a word.

    A text within JSON may be JSON itself, which is parsed later. So each character of the key matches as itself and
    as `u0073`, after any number of backslashes. The function parses nothing, because the body need not be JSON.
    """
    if spare_words and _PLACEHOLDER.fullmatch(key):
        return body
    body = body.replace(key.encode(), b"[key]")
    return _escaped_pattern(key).sub(b"[key]", body) if b"\\" in body else body


@cache
def _escaped_pattern(key: str) -> re.Pattern[bytes]:
    """A pattern of the key at any depth of JSON strings. Its quantifiers are possessive, for linear time."""
    escapes = r"(?:\\|u005[cC])"
    runs = re.findall(r"\\+|[^\\]", key)  # backslashes in a row are one part, since a possessive match takes all
    parts = (
        f"{escapes}{{{len(one)},}}+" if one[0] == "\\" else f"{escapes}*+(?:(?i:u00{ord(one):02x})|{re.escape(one)})"
        for one in runs
    )
    return re.compile((r"(?<!\\)(?<!u005[cC])" + "".join(parts)).encode())
