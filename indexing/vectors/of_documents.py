"""Vectors of whole documents, made when a run first asks for them and kept in `documents.sqlite` beside the index."""

from collections.abc import Callable, Sequence

import numpy as np

from indexing.errors import TextRefused, UserError
from indexing.index import Index
from indexing.types import Document, Store
from indexing.vectors.cache import open_cache
from indexing.vectors.embed import embed_passages, embedder
from indexing.vectors.types import ONE_THREAD, Effort, Vectors

CHUNK_DOCUMENTS = 1_024
"""Documents whose texts are in memory at once."""

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
    effort: Effort = ONE_THREAD,
) -> Vectors:
    """The vectors of the documents in these rows of the index's store, float32[len(rows), dimension].

    `UserError` if the index names no embedding model, or if the model refuses a document.
    """
    if index.embedding is None:
        raise UserError(f"{index.folder}: has no embeddings: build it with them")
    embedding = index.embedding
    vectors = np.empty((len(rows), embedder(embedding).dimension), np.float32)
    with (
        open_cache(index.folder / "documents.sqlite", embedding) as cache,
        effort.progress("Embedding candidates", len(rows)) as tick,
    ):
        for start in range(0, len(rows), CHUNK_DOCUMENTS):
            chunk = rows[start : start + CHUNK_DOCUMENTS]
            texts = texts_of(store.get(chunk))

            def make(missing: Sequence[int], chunk: Sequence[int] = chunk, texts: Sequence[str] = texts) -> Vectors:
                tick(len(chunk) - len(missing))
                try:
                    return embed_passages(embedding, [texts[i] for i in missing], effort.threads, tick)[:, None]
                except TextRefused as error:
                    raise UserError(f"document {store.ids([chunk[missing[error.position]]])[0]}: {error}") from error

            found = cache.fill([[text] for text in texts], make)
            vectors[start : start + len(chunk)] = np.concatenate(found) if found else vectors[:0]
    return vectors
