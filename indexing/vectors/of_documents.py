"""Vectors of documents: a run makes them when it first needs them, and keeps them in the index's `documents.sqlite`."""

from collections.abc import Callable, Sequence

import numpy as np

from keystone.indexing.embedder import ONE_THREAD, Effort, Vectors
from keystone.indexing.errors import TextRefused, UserError
from keystone.indexing.index import Index
from keystone.indexing.types import Document, Store
from keystone.indexing.vectors.embed import embed_passages, load_embedder
from keystone.indexing.vectors.of_segments import open_cache

CHUNK_DOCUMENTS = 1_024
"""The documents whose texts are in memory at once."""

TextsOf = Callable[[Sequence[Document]], Sequence[str]]
"""Gives the text of each document to embed, such as a summary of a long document."""


def join_title_and_text(documents: Sequence[Document]) -> list[str]:
    """The title and text of each document, the text that an index embeds."""
    return [document.contents for document in documents]


def document_vectors(
    index: Index,
    store: Store,
    rows: Sequence[int],
    texts_of: TextsOf = join_title_and_text,
    effort: Effort = ONE_THREAD,
) -> Vectors:
    """Vectors of documents by row, float32[len(rows), dimension]. `UserError` if a model is missing, or refuses one."""
    if index.embedding is None:
        raise UserError(f"{index.folder}: has no embeddings: build it with them")
    embedding = index.embedding
    vectors = np.empty((len(rows), load_embedder(embedding).dimension), np.float32)
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
