"""Vectors of sentences: a run makes them when it first needs them, and keeps them in the index's `sentences.sqlite`."""

from collections.abc import Sequence

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.vectors.cache import open_cache
from keystone.indexing.vectors.embed import embed_passages, load_embedder
from keystone.indexing.vectors.types import Vectors


def sentence_vectors(index: Index, texts: Sequence[str], threads: int = 1) -> Vectors:
    """The vectors of texts by the index's model, float32[len(texts), dimension]; each text is embedded once.

    `UserError` if the index names no embedding model.
    """
    embedding = index.embedding
    if embedding is None:
        raise UserError(f"{index.folder}: has no embeddings, which answers need: build it with them")

    def make(missing: Sequence[int]) -> Vectors:
        return embed_passages(embedding, [texts[i] for i in missing], threads)[:, None]

    with open_cache(index.folder / "sentences.sqlite", embedding) as cache:
        found = cache.fill([[text] for text in texts], make)
    return np.concatenate([np.empty((0, load_embedder(embedding).dimension), np.float32), *found])
