"""Embeddings of whole documents, made when first asked for and kept beside the index.

The cache (`documents.sqlite`) is keyed by the text that was embedded. It may be deleted at any time and shared by
several processes.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from hashlib import sha256

import numpy as np

from indexing.build import Index
from indexing.embed import TextRefused, Vectors, embed_passages, embedder
from indexing.errors import UserError
from indexing.segment_vectors import vector_cache
from indexing.types import Document, Progress, Store, silent

CHUNK = 1_024

Texts = Callable[[Sequence[Document]], Sequence[str]]
"""The text of each document that its vector shall stand for, such as a summary of a long one."""


def contents(documents: Sequence[Document]) -> list[str]:
    """Title and text."""
    return [document.contents for document in documents]


def document_vectors(
    index: Index,
    store: Store,
    rows: Sequence[int],
    texts_of: Texts = contents,
    threads: int = 1,
    progress: Progress = silent,
) -> Vectors:
    """The vectors of the documents in these rows of the index's store, float32[len(rows), dimension]."""
    if index.embedding is None:
        raise UserError(f"{index.folder}: has no embeddings: build it with them")
    embedding = index.embedding
    vectors = np.empty((len(rows), embedder(embedding).dimension), np.float32)
    with (
        closing(vector_cache(index.folder / "documents.sqlite", "text BLOB")) as cache,
        progress("Embedding candidates", len(rows)) as tick,
    ):
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            texts = texts_of(store.get(chunk))
            keys = [sha256(text.encode(errors="surrogatepass")).digest() for text in texts]
            missing = []
            for i, key in enumerate(keys):
                known = cache.execute("SELECT vectors FROM vectors WHERE text = ?", (key,)).fetchone()
                if known and len(known[0]) == vectors[start + i].nbytes:
                    vectors[start + i] = np.frombuffer(known[0], dtype=np.float32)
                else:
                    missing.append(i)
            tick(len(chunk) - len(missing))
            try:
                made = embed_passages(embedding, [texts[i] for i in missing], threads, tick)
            except TextRefused as error:
                raise UserError(f"document {store.ids([chunk[missing[error.position]]])[0]}: {error}") from error
            vectors[[start + i for i in missing]] = made
            with suppress(sqlite3.OperationalError), cache:  # an index that cannot be written is used as it is
                rows_made = [(keys[i], vector.tobytes()) for i, vector in zip(missing, made, strict=True)]
                cache.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows_made)
    return vectors
