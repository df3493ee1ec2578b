"""Contents by key, with checksums, in an SQLite file that processes share, and that a user may delete."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from keystone.indexing.errors import NotWritten, UserError

MOST_KEYS = 500
"""The keys of one SQL statement. Older versions of SQLite allow 999."""
WRITER_TIMEOUT_S = 60.0
"""The time for which a process waits while another one writes."""

_TABLE = "CREATE TABLE IF NOT EXISTS by_text (key BLOB PRIMARY KEY, content BLOB NOT NULL, sum BLOB NOT NULL)"
"""In files of earlier versions the second column has another name. So no statement names a column but `key`."""


class Kept:
    """The contents in an open file; `open_kept` opens one."""

    def __init__(self, file: sqlite3.Connection, ignored: Sequence[type[sqlite3.Error]]) -> None:
        self._file, self._ignored = file, ignored

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The contents of those keys that the file holds undamaged."""
        rows: list[tuple[bytes, bytes, bytes]] = []
        for start in range(0, len(keys), MOST_KEYS):
            some = keys[start : start + MOST_KEYS]
            query = f"SELECT * FROM by_text WHERE key IN ({', '.join('?' * len(some))})"
            rows += self._file.execute(query, some)
        return {
            key: content
            for key, content, checksum in rows
            if isinstance(content, bytes) and checksum == _checksum(content)
        }

    def put(self, made: Mapping[bytes, bytes]) -> None:
        """Keep contents in one commit. Unless the file must keep them, it keeps nothing when the disk is full."""
        rows = [(key, content, _checksum(content)) for key, content in made.items()]
        with suppress(*self._ignored), self._file:
            self._file.executemany("INSERT OR REPLACE INTO by_text VALUES (?, ?, ?)", rows)


@contextmanager
def open_kept(path: Path, must_keep: bool = False) -> Iterator[Kept]:
    """The contents in a file, or in memory if it cannot be opened or made, unless it `must_keep` them.

    `UserError` if it is damaged. `NotWritten` if it must keep contents and cannot.
    """
    ignored = () if must_keep else (sqlite3.OperationalError,)
    try:
        try:
            file = sqlite3.connect(path, timeout=WRITER_TIMEOUT_S)
            file.execute(_TABLE)
        except ignored:
            file = sqlite3.connect(":memory:")
            file.execute(_TABLE)
        with closing(file):
            yield Kept(file, ignored)
    except sqlite3.DatabaseError as error:
        if must_keep and isinstance(error, sqlite3.OperationalError):
            raise NotWritten(path, str(error)) from error
        raise UserError(f"{path}: damaged: delete it, it will be made again: {error}") from error


def copy_kept(path: Path, folder: Path) -> None:
    """Copy a file of contents into a folder while others may write it. A file that cannot be read is left out."""
    copy = folder / path.name
    try:
        with closing(sqlite3.connect(path, timeout=WRITER_TIMEOUT_S)) as file, closing(sqlite3.connect(copy)) as out:
            file.backup(out)
    except sqlite3.Error:
        copy.unlink(missing_ok=True)


def hash_parts(maker: bytes, parts: Sequence[str]) -> bytes:
    """The key of what a maker makes of some texts: a SHA-256, bytes[32]."""
    hashed = sha256(maker)
    for text in parts:
        content = text.encode(errors="surrogatepass")
        hashed.update(len(content).to_bytes(8, "little") + content)
    return hashed.digest()


def _checksum(content: bytes) -> bytes:
    return sha256(content).digest()[:8]
