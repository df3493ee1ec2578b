"""Embeddings of single sentences, made when first asked for and kept beside the index.

The cache (`sentences.sqlite`) is keyed by the text that was embedded. It may be deleted at any time and shared by
several processes.
"""

from collections.abc import Sequence

import numpy as np

from indexing.errors import UserError
from indexing.index import Index
from indexing.vectors.embed import embed_passages, embedder
from indexing.vectors.of_segments import keep_vectors, kept_vectors, text_key, vector_cache
from indexing.vectors.types import Vectors


def sentence_vectors(index: Index, texts: Sequence[str], threads: int = 1) -> Vectors:
    """The vectors of texts by the index's model, float32[len(texts), dimension]; each text is embedded once."""
    embedding = index.embedding
    if embedding is None:
        raise UserError(f"{index.folder}: has no embeddings, which answers need: build it with them")
    shape = (1, embedder(embedding).dimension)
    keys = [text_key(embedding, [text]) for text in texts]
    with vector_cache(index.folder / "sentences.sqlite") as cache:
        found = {key: known for key in keys if (known := kept_vectors(cache, key, shape)) is not None}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        made = embed_passages(embedding, list(missing.values()), threads)
        rows = {key: vector[None] for key, vector in zip(missing, made, strict=True)}
        keep_vectors(cache, rows)
    found.update(rows)
    return np.concatenate([np.empty((0, shape[1]), np.float32), *(found[key] for key in keys)])
