"""Vectors of sentences: a run makes them when it first needs them, and keeps them in the index's `sentences.sqlite`."""

from collections.abc import Sequence

import numpy as np

from keystone.indexing.index import Index
from keystone.indexing.vectors.cache import open_cache
from keystone.indexing.vectors.embed import embed_passages, load_embedder
from keystone.indexing.vectors.types import Vectors


def sentence_vectors(index: Index, texts: Sequence[str], threads: int = 1) -> Vectors:
    """The vectors of texts by the index's model, or by words if it has none: float32[len(texts), dimension].

    Each text is embedded once.
    """
    embedding = index.compares_by

    def make(missing: Sequence[int]) -> Vectors:
        return embed_passages(embedding, [texts[i] for i in missing], threads)[:, None]

    with open_cache(index.folder / "sentences.sqlite", embedding) as cache:
        found = cache.fill([[text] for text in texts], make)
    return np.concatenate([np.empty((0, load_embedder(embedding).dimension), np.float32), *found])
