"""Embeddings of whole documents, made when first asked for and kept beside the index.

The cache (`documents.sqlite`) is keyed by the text that was embedded and by the model. It may be deleted at any time
and shared by several processes.
"""

from collections.abc import Callable, Sequence

import numpy as np

from indexing.errors import UserError
from indexing.index import Index
from indexing.types import Document, Progress, Store, silent
from indexing.vectors.embed import embed_passages, embedder
from indexing.vectors.of_segments import keep_vectors, kept_vectors, text_key, vector_cache
from indexing.vectors.types import TextRefused, Vectors

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
        vector_cache(index.folder / "documents.sqlite") as cache,
        progress("Embedding candidates", len(rows)) as tick,
    ):
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            texts = texts_of(store.get(chunk))
            keys = [text_key(embedding, [text]) for text in texts]
            missing = []
            for i, key in enumerate(keys):
                known = kept_vectors(cache, key, (1, vectors.shape[1]))
                if known is None:
                    missing.append(i)
                else:
                    vectors[start + i] = known[0]
            tick(len(chunk) - len(missing))
            try:
                made = embed_passages(embedding, [texts[i] for i in missing], threads, tick)
            except TextRefused as error:
                raise UserError(f"document {store.ids([chunk[missing[error.position]]])[0]}: {error}") from error
            vectors[[start + i for i in missing]] = made
            keep_vectors(cache, {keys[i]: vector for i, vector in zip(missing, made, strict=True)})
    return vectors
