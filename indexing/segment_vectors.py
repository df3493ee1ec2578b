"""Embeddings of segments, made when first asked for and kept beside the index.

Each document's segments are embedded as one batch of their own, so a vector does not depend on which run asked
for it first. The cache (`segments.sqlite`) may be deleted at any time and shared by several processes.
"""

import os
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np

from indexing.build import Index
from indexing.embed import Vectors, embedder
from indexing.errors import UserError
from indexing.store import DocumentStore
from indexing.types import Progress, silent

CHUNK = 64


def segment_vectors(
    index: Index, rows: Sequence[int], threads: int = 0, progress: Progress = silent
) -> dict[int, Vectors]:
    """For each document row the vectors of its segments (float32[segments, dimension])."""
    if index.embedding is None:
        raise UserError(f"{index.folder}: has no embeddings, which segment assignment needs: build it with them")
    model = embedder(index.embedding)
    store = DocumentStore(index.store)
    wanted = sorted(set(rows))

    def embed(row: int) -> tuple[int, bytes]:
        document = store.get([row])[0]
        texts = [document.segment_text(segment) for segment in document.segments]
        return row, model.embed(texts, threads=1).tobytes()

    with closing(sqlite3.connect(index.folder / "segments.sqlite", timeout=60)) as cache:
        cache.execute("PRAGMA journal_mode = WAL")
        cache.execute("CREATE TABLE IF NOT EXISTS vectors (row INTEGER PRIMARY KEY, vectors BLOB NOT NULL)")
        known = {row for (row,) in cache.execute("SELECT row FROM vectors")}
        missing = [row for row in wanted if row not in known]
        if missing:
            workers = threads or os.cpu_count() or 1
            with progress("Embedding segments", len(missing)) as tick, ThreadPoolExecutor(workers) as pool:
                for start in range(0, len(missing), CHUNK):
                    made = list(pool.map(embed, missing[start : start + CHUNK]))
                    with cache:
                        cache.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", made)
                    tick(len(made))
        found = {}
        for row in wanted:
            (blob,) = cache.execute("SELECT vectors FROM vectors WHERE row = ?", (row,)).fetchone()
            found[row] = np.frombuffer(blob, dtype=np.float32).reshape(-1, model.dimension)
        return found
