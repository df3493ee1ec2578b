"""Embeddings of segments, made when first asked for and kept beside the index.

Each document's segments are embedded as one batch of their own, so a vector does not depend on which run asked
for it first. The cache (`segments.sqlite`) is keyed by the texts that were embedded and by the model. It may be deleted
at any time and shared by several processes; what versions before kept in it by document id is not looked at.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from indexing.errors import UserError
from indexing.index import Index
from indexing.io.files import digest
from indexing.types import Embedding, Progress, Store, silent
from indexing.vectors.embed import embed_passages, embedder
from indexing.vectors.types import Vectors

CHUNK = 64


def segment_vectors(
    index: Index, store: Store, rows: Sequence[int], threads: int = 1, progress: Progress = silent
) -> dict[int, Vectors]:
    """For each document row the vectors of its segments (float32[segments, dimension])."""
    if index.embedding is None:
        raise UserError(f"{index.folder}: has no embeddings, which segment assignment needs: build it with them")
    embedding, dimension = index.embedding, embedder(index.embedding).dimension
    wanted = sorted(set(rows))
    found: dict[int, Vectors] = {}
    with (
        vector_cache(index.folder / "segments.sqlite") as cache,
        progress("Embedding segments", len(wanted)) as tick,
        ThreadPoolExecutor(threads) as pool,
    ):
        for start in range(0, len(wanted), CHUNK):
            chunk = wanted[start : start + CHUNK]
            texts = {
                row: [document.segment_text(segment) for segment in document.segments]
                for row, document in zip(chunk, store.get(chunk), strict=True)
            }
            keys = {row: text_key(embedding, own) for row, own in texts.items()}
            for row in chunk:
                if (known := kept_vectors(cache, keys[row], (len(texts[row]), dimension))) is not None:
                    found[row] = known
            missing = [row for row in chunk if row not in found]
            vectors = pool.map(partial(embed_passages, embedding), [texts[row] for row in missing])
            made = dict(zip(missing, vectors, strict=True))
            keep_vectors(cache, {keys[row]: own for row, own in made.items()})
            found |= made
            tick(len(chunk))
    return found


def text_key(embedding: Embedding, texts: Sequence[str]) -> bytes:
    """The key of what a model makes of some texts that it is given together."""
    hashed = sha256(digest(embedding.made_by).encode())
    for text in texts:
        content = text.encode(errors="surrogatepass")
        hashed.update(len(content).to_bytes(8, "little") + content)
    return hashed.digest()


@contextmanager
def vector_cache(path: Path) -> Iterator[sqlite3.Connection]:
    """Vectors by `text_key`; in memory where the file cannot be written. `UserError` for a file that is damaged."""
    table = "CREATE TABLE IF NOT EXISTS by_text (key BLOB PRIMARY KEY, vectors BLOB NOT NULL, sum BLOB NOT NULL)"
    try:
        try:
            cache = sqlite3.connect(path, timeout=60)
            cache.execute(table)
        except sqlite3.OperationalError:
            cache = sqlite3.connect(":memory:")
            cache.execute(table)
        with closing(cache):
            yield cache
    except sqlite3.DatabaseError as error:
        raise UserError(f"{path}: damaged: delete it, it will be made again: {error}") from error


def kept_vectors(cache: sqlite3.Connection, key: bytes, shape: tuple[int, int]) -> Vectors | None:
    """The vectors that a cache holds for a key; None where it has none of this shape, or damaged ones."""
    known = cache.execute("SELECT vectors, sum FROM by_text WHERE key = ?", (key,)).fetchone()
    if not known or known[1] != _sum(known[0]) or len(known[0]) != 4 * shape[0] * shape[1]:
        return None
    return np.frombuffer(known[0], dtype=np.float32).reshape(shape)


def keep_vectors(cache: sqlite3.Connection, made: dict[bytes, Vectors]) -> None:
    """Put vectors into a cache; one that cannot be written, also because the disk is full, is used as it is."""
    with suppress(sqlite3.OperationalError), cache:
        rows = [(key, own.tobytes(), _sum(own.tobytes())) for key, own in made.items()]
        cache.executemany("INSERT OR REPLACE INTO by_text VALUES (?, ?, ?)", rows)


def _sum(content: bytes) -> bytes:
    """A checksum, since SQLite has none of what it reads."""
    return sha256(content).digest()[:8]
