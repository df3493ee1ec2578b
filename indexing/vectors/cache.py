"""A cache of vectors: a run makes them when it first needs them, and keeps them in an SQLite file beside the index.

A key is the hash of `Embedding.made_by` and of the texts that the model embedded together. So a user may delete a file
at any time or copy it between indexes, and several processes may share it. Each row has a checksum, since SQLite checks
no content itself.
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
from indexing.vectors.embed import load_embedder
from indexing.vectors.types import Vectors

MOST_KEYS = 500
"""The keys of one SQL statement. Older versions of SQLite allow 999."""
WRITER_TIMEOUT_S = 60.0
"""The time for which a process waits while another one writes."""

_TABLE = "CREATE TABLE IF NOT EXISTS by_text (key BLOB PRIMARY KEY, vectors BLOB NOT NULL, sum BLOB NOT NULL)"

MakeVectors = Callable[[Sequence[int]], Iterable[Vectors]]
"""Makes the vectors of the groups with these numbers, in order."""


class VectorCache:
    """A cache in an open file; `open_cache` opens one."""

    def __init__(self, file: sqlite3.Connection, embedding: Embedding) -> None:
        self._file, self._embedding, self._dimension = file, embedding, load_embedder(embedding).dimension

    def fill(self, groups: Sequence[Sequence[str]], make: MakeVectors) -> list[Vectors]:
        """The vectors of each group of texts, float32[texts of the group, dimension].

        One call of `make` makes the vectors that the file lacks, those of each group once. Then the file holds them.
        """
        keys = [hash_texts(self._embedding, texts) for texts in groups]
        first = {key: number for number, key in reversed(list(enumerate(keys)))}
        shapes = {key: (len(groups[number]), self._dimension) for key, number in first.items()}
        found = self._get(shapes)
        missing = sorted(number for key, number in first.items() if key not in found)
        made = {keys[number]: vectors for number, vectors in zip(missing, make(missing), strict=True)}
        self._put(made)
        found |= made
        return [found[key] for key in keys]

    def _get(self, shapes: Mapping[bytes, tuple[int, int]]) -> dict[bytes, Vectors]:
        """The vectors of those keys that the file holds, undamaged and of these shapes."""
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
        """Keep vectors in one commit. If the file cannot be written, as when the disk is full, it keeps nothing."""
        rows = [(key, vectors.tobytes(), _checksum(vectors.tobytes())) for key, vectors in made.items()]
        with suppress(sqlite3.OperationalError), self._file:
            self._file.executemany("INSERT OR REPLACE INTO by_text VALUES (?, ?, ?)", rows)


@contextmanager
def open_cache(path: Path, embedding: Embedding) -> Iterator[VectorCache]:
    """The cache in a file. If the file cannot be opened or made, the cache is in memory.

    `UserError` if the file is damaged.
    """
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


def hash_texts(embedding: Embedding, texts: Sequence[str]) -> bytes:
    """The key of the vectors of some texts that a model embeds together: a SHA-256, bytes[32]."""
    hashed = sha256(digest(embedding.made_by).encode())
    for text in texts:
        content = text.encode(errors="surrogatepass")
        hashed.update(len(content).to_bytes(8, "little") + content)
    return hashed.digest()


def _checksum(content: bytes) -> bytes:
    return sha256(content).digest()[:8]
