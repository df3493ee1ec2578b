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
from indexing.store import DocumentStore
from indexing.types import Progress, silent

CHUNK = 64


def segment_vectors(
    index: Index, rows: Sequence[int], threads: int = 1, progress: Progress = silent
) -> dict[int, Vectors]:
    """For each document row the vectors of its segments (float32[segments, dimension])."""
    if index.embedding is None:
        raise UserError(f"{index.folder}: has no embeddings, which segment assignment needs: build it with them")
    embedding, dimension = index.embedding, embedder(index.embedding).dimension
    store = DocumentStore(index.store)
    wanted = sorted(set(rows))

    def embed(row: int) -> Vectors:
        document = store.get([row])[0]
        return embed_passages(embedding, [document.segment_text(segment) for segment in document.segments])

    found: dict[int, Vectors] = {}
    with closing(vector_cache(index.folder / "segments.sqlite", "row INTEGER")) as cache:
        missing = []
        for row in wanted:
            known = cache.execute("SELECT vectors FROM vectors WHERE row = ?", (row,)).fetchone()
            if known:
                found[row] = np.frombuffer(known[0], dtype=np.float32).reshape(-1, dimension)
            else:
                missing.append(row)
        with progress("Embedding segments", len(missing)) as tick, ThreadPoolExecutor(threads) as pool:
            for start in range(0, len(missing), CHUNK):
                chunk = missing[start : start + CHUNK]
                made = dict(zip(chunk, pool.map(embed, chunk), strict=True))
                found.update(made)
                with suppress(sqlite3.OperationalError), cache:  # an index that cannot be written is used as it is
                    rows_made = [(row, vectors.tobytes()) for row, vectors in made.items()]
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
