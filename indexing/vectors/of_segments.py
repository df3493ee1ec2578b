"""Vectors of segments: those of the index's passages. An index without passages gets them when a run needs them.

Keystone then keeps them in the index's `segments.sqlite`. The segments of a document are embedded as one batch, so a
vector does not depend on the run that made it.

Vectors of sentences are made when a run first needs them, and kept in the index's `sentences.sqlite`.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from keystone.indexing.index import Index
from keystone.indexing.types import Progress, Store, silent
from keystone.indexing.vectors.cache import open_cache
from keystone.indexing.vectors.embed import embed_passages, load_embedder
from keystone.indexing.vectors.passages import open_kept_passages
from keystone.indexing.vectors.types import Vectors

CHUNK_DOCUMENTS = 64
"""The documents whose segments are embedded and kept together."""


@runtime_checkable
class PassageStore(Protocol):
    """A store that holds the vectors of passages too, if its index is one of passages."""

    def passage_vectors(self, rows: Sequence[int]) -> dict[int, Vectors]:
        """Read the vectors of the passages of documents, float32[passages, dimension], by row."""


def segment_vectors(
    index: Index, store: Store, rows: Sequence[int], threads: int = 1, progress: Progress = silent
) -> dict[int, Vectors]:
    """The vectors of each document's segments, float32[segments, dimension], by the document's row.

    They are by the index's model, or by words if it has none.
    """
    if kept := open_kept_passages(index):
        return {row: kept.view(row, row + 1).copy() for row in set(rows)}
    if index.passages and not index.pooled and isinstance(store, PassageStore):
        return store.passage_vectors(rows)
    embed = partial(embed_passages, index.compares_by)
    wanted = sorted(set(rows))
    found: dict[int, Vectors] = {}
    with (
        open_cache(index.folder / "segments.sqlite", index.compares_by) as cache,
        progress("Embedding segments", len(wanted)) as tick,
        ThreadPoolExecutor(threads) as pool,
    ):
        for start in range(0, len(wanted), CHUNK_DOCUMENTS):
            chunk = wanted[start : start + CHUNK_DOCUMENTS]
            documents = store.get(chunk)
            texts = [[document.segment_text(segment) for segment in document.segments] for document in documents]

            def make(missing: Sequence[int], texts: Sequence[Sequence[str]] = texts) -> Iterable[Vectors]:
                return pool.map(embed, [texts[i] for i in missing])

            found |= zip(chunk, cache.fill(texts, make), strict=True)
            tick(len(chunk))
    return found


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
