"""Embeddings of segments, made when first asked for and kept beside the index.

Each document's segments are embedded as one batch of their own, so a vector does not depend on which run asked
for it first. The cache (`segments.sqlite`) may be deleted at any time and shared by several processes.
"""

import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from indexing.build import Index
from indexing.embed import Vectors, embed_passages, embedder
from indexing.errors import UserError
from indexing.types import Document, Progress, Store, silent

CHUNK = 64


def segment_vectors(
    index: Index, store: Store, rows: Sequence[int], threads: int = 1, progress: Progress = silent
) -> dict[int, Vectors]:
    """For each document row the vectors of its segments (float32[segments, dimension])."""
    if index.embedding is None:
        raise UserError(f"{index.folder}: has no embeddings, which segment assignment needs: build it with them")
    embedding, dimension = index.embedding, embedder(index.embedding).dimension
    wanted = sorted(set(rows))

    def embed(document: Document) -> Vectors:
        return embed_passages(embedding, [document.segment_text(segment) for segment in document.segments])

    found: dict[int, Vectors] = {}
    with closing(vector_cache(index.folder / "segments.sqlite", "id TEXT")) as cache:
        missing = []
        for row, name in zip(wanted, store.ids(wanted), strict=True):
            known = cache.execute("SELECT vectors FROM vectors WHERE id = ?", (name,)).fetchone()
            if known:
                found[row] = np.frombuffer(known[0], dtype=np.float32).reshape(-1, dimension)
            else:
                missing.append(row)
        with progress("Embedding segments", len(missing)) as tick, ThreadPoolExecutor(threads) as pool:
            for start in range(0, len(missing), CHUNK):
                chunk = missing[start : start + CHUNK]
                documents = store.get(chunk)
                made = list(pool.map(embed, documents))
                found.update(zip(chunk, made, strict=True))
                with suppress(sqlite3.OperationalError), cache:  # an index that cannot be written is used as it is
                    rows_made = [(d.id, vectors.tobytes()) for d, vectors in zip(documents, made, strict=True)]
                    cache.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows_made)
                tick(len(made))
    return found


def vector_cache(path: Path, key: str) -> sqlite3.Connection:
    """The table `vectors`, by a key of this name and type; in memory where the file cannot be written."""
    table = f"CREATE TABLE IF NOT EXISTS vectors ({key} PRIMARY KEY, vectors BLOB NOT NULL)"
    try:
        cache = sqlite3.connect(path, timeout=60)
        cache.execute(table)
    except sqlite3.OperationalError:
        cache = sqlite3.connect(":memory:")
        cache.execute(table)
    except sqlite3.DatabaseError as error:
        raise UserError(f"{path}: damaged: delete it, it will be made again") from error
    return cache
