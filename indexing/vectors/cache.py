"""Vectors that are made when a run first asks for them, and kept in an SQLite file beside the index.

A key stands for some texts that the model was given together and for `Embedding.made_by`. So a file may be deleted at
any time, copied between indexes, and shared by several processes. Each reply of SQLite is checked against a checksum,
since SQLite has none of its own.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import numpy as np

from indexing.errors import UserError
from indexing.io.json_values import digest
from indexing.types import Embedding
from indexing.vectors.embed import embedder
from indexing.vectors.types import Vectors

MOST_KEYS = 500
"""Keys of one SQL statement; SQLite allows 999 in its older versions."""
WRITER_TIMEOUT_S = 60.0
"""How long one process waits while another one writes."""

_TABLE = "CREATE TABLE IF NOT EXISTS by_text (key BLOB PRIMARY KEY, vectors BLOB NOT NULL, sum BLOB NOT NULL)"

Make = Callable[[Sequence[int]], Iterable[Vectors]]
"""The vectors of the groups with these numbers, in order."""


class VectorCache:
    """The vectors in an open file; `open_cache` opens one."""

    def __init__(self, file: sqlite3.Connection, embedding: Embedding) -> None:
        self._file, self._embedding, self._dimension = file, embedding, embedder(embedding).dimension

    def fill(self, groups: Sequence[Sequence[str]], make: Make) -> list[Vectors]:
        """The vectors of each group of texts, float32[texts of the group, dimension].

        `make` makes those that the file lacks: each group once, all in one call. The file then holds them too.
        """
        keys = [text_key(self._embedding, texts) for texts in groups]
        first = {key: number for number, key in reversed(list(enumerate(keys)))}
        shapes = {key: (len(groups[number]), self._dimension) for key, number in first.items()}
        found = self._get(shapes)
        missing = sorted(number for key, number in first.items() if key not in found)
        made = {keys[number]: vectors for number, vectors in zip(missing, make(missing), strict=True)}
        self._put(made)
        found |= made
        return [found[key] for key in keys]

    def _get(self, shapes: Mapping[bytes, tuple[int, int]]) -> dict[bytes, Vectors]:
        """The vectors of these keys that are there, undamaged and of these shapes."""
        keys, found = list(shapes), {}
        for start in range(0, len(keys), MOST_KEYS):
            some = keys[start : start + MOST_KEYS]
            query = f"SELECT key, vectors, sum FROM by_text WHERE key IN ({', '.join('?' * len(some))})"
            for key, content, checksum in self._file.execute(query, some):
                rows, columns = shapes[key]
                if checksum == _checksum(content) and len(content) == 4 * rows * columns:
                    found[key] = np.frombuffer(content, dtype=np.float32).reshape(rows, columns)
        return found

    def _put(self, made: Mapping[bytes, Vectors]) -> None:
        """Keep vectors by one commit. If the file cannot be written, also because the disk is full, nothing is kept."""
        rows = [(key, vectors.tobytes(), _checksum(vectors.tobytes())) for key, vectors in made.items()]
        with suppress(sqlite3.OperationalError), self._file:
            self._file.executemany("INSERT OR REPLACE INTO by_text VALUES (?, ?, ?)", rows)


@contextmanager
def open_cache(path: Path, embedding: Embedding) -> Iterator[VectorCache]:
    """The cache in a file; if the file cannot be opened or made, a cache in memory. `UserError` if it is damaged."""
    try:
        try:
            file = sqlite3.connect(path, timeout=WRITER_TIMEOUT_S)
            file.execute(_TABLE)
        except sqlite3.OperationalError:
            file = sqlite3.connect(":memory:")
            file.execute(_TABLE)
        with closing(file):
            yield VectorCache(file, embedding)
    except sqlite3.DatabaseError as error:
        raise UserError(f"{path}: damaged: delete it, it will be made again: {error}") from error


def text_key(embedding: Embedding, texts: Sequence[str]) -> bytes:
    """The key of the vectors that a model makes of some texts given together."""
    hashed = sha256(digest(embedding.made_by).encode())
    for text in texts:
        content = text.encode(errors="surrogatepass")
        hashed.update(len(content).to_bytes(8, "little") + content)
    return hashed.digest()


def _checksum(content: bytes) -> bytes:
    return sha256(content).digest()[:8]
