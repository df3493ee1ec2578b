"""Vectors of an older index for the texts that a new one shares with it, so that only other texts are embedded.

A text has the vector of the older document or passage at the same place, or of one that left the index with the same
text. The older FAISS index must hold the vectors themselves, as `Flat`, `HNSW32` and `IVF256,Flat` do.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keystone.indexing.embedder import CHUNK_TEXTS, Vectors
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.store import DocumentStore
from keystone.indexing.types import Document, chunks
from keystone.indexing.vectors import shards
from keystone.indexing.vectors.embed import load_embedder
from keystone.indexing.vectors.faiss_index import import_faiss, load_dense_shards
from keystone.indexing.vectors.passages import Passages, load_offsets
from keystone.indexing.vectors.shards import Shards, Texts

Rows = NDArray[np.int64]


def join_vectors(
    older: Index, store: DocumentStore, texts: Texts, stayed: Rows, embed: Callable[[Texts], Shards]
) -> Shards:
    """Return the vectors of all texts; only those that the older index lacks go to `embed`.

    `store` is that of the older index, and `stayed` int64[documents] has its rows of the documents that have not
    changed, or -1. If the older index holds no vectors as they are, all texts are embedded. Memory: a hash of each
    text that left its place. `UserError` if the model has changed since then, and as from `embed`.
    """
    kept = open_kept_vectors(older)
    if kept is None:
        return embed(texts)
    before: Texts = store
    if isinstance(texts, Passages):
        before = Passages(store, load_offsets(older))
        stayed = _expand(stayed, texts.offsets, before.offsets)
    sources, is_gone = stayed.copy(), np.ones(len(before), dtype=bool)
    is_gone[stayed[stayed >= 0]] = False
    gone, changed = np.flatnonzero(is_gone), np.flatnonzero(stayed < 0)
    known = {_hash(text): row for row, text in _read(before, gone)} if len(changed) else {}
    for row, text in _read(texts, changed):
        sources[row] = known.get(_hash(text), -1)
    moved, new = sources[changed], np.flatnonzero(sources < 0)
    made = embed(Selected(texts, new)) if len(new) else Shards([], 0, 0)
    cut = older.cut - count_long(older, before, gone) + count_long(older, before, moved[moved >= 0])
    places = np.searchsorted(new, np.arange(len(texts)))
    return JoinedShards([], len(texts), max(0, cut) + made.cut, kept, sources, places, made)


def _expand(stayed: Rows, offsets: Rows, older: Rows) -> Rows:
    """Turn the older rows of documents into those of their passages, by the offsets of the new and older passages."""
    counts = np.diff(offsets)
    first = np.repeat(np.where(stayed >= 0, older[stayed], -1), counts)
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    return np.where(first >= 0, first + place, -1)


def open_kept_vectors(index: Index) -> Callable[[Rows], Vectors] | None:
    """Map rows int64[n] to float32[n, dimension]; None if FAISS holds another form. `UserError` for damage."""
    files = load_dense_shards(index.dense_files)
    parts = [_holder(file) for file in files]
    if None in parts:
        return None
    ends = np.cumsum([part.ntotal for part in parts])
    dimension = int(parts[0].d)

    def read(rows: Rows, _owners: Sequence[Any] = files) -> Vectors:  # a part is valid as long as its file
        found = np.empty((len(rows), dimension), np.float32)
        places = np.searchsorted(ends, rows, side="right")
        for number in np.unique(places).tolist():
            own = places == number
            found[own] = parts[number].reconstruct_batch(rows[own] - (ends[number] - parts[number].ntotal))
        return found

    return read


def _holder(index: Any) -> Any:
    """Return the part of a FAISS index that holds the vectors themselves; None if there is none."""
    faiss = import_faiss()
    if isinstance(index, faiss.IndexRefineFlat):
        return faiss.downcast_index(index.refine_index)
    if isinstance(index, faiss.IndexIVFFlatDedup | faiss.IndexIVFFlatPanorama):
        return None
    if isinstance(index, faiss.IndexIVFFlat):
        index.make_direct_map()
    return index if isinstance(index, faiss.IndexFlat | faiss.IndexHNSWFlat | faiss.IndexIVFFlat) else None


@dataclass(frozen=True, slots=True)
class JoinedShards(Shards):
    """The vectors of all texts by row, from an older index and from the shards of the texts that it lacks."""

    kept: Callable[[Rows], Vectors]
    sources: Rows
    places: Rows
    """The number of texts before each one that the older index lacks: int64[texts]."""
    made: Shards

    @property
    def dimension(self) -> int:
        """The number of entries of a vector."""
        return int(self.kept(self.sources[:0]).shape[1])

    def _open(self, number: int) -> Vectors:
        rows = slice(number * shards.SHARD_DOCUMENTS, (number + 1) * shards.SHARD_DOCUMENTS)
        sources, places = self.sources[rows], self.places[rows]
        known = sources >= 0
        old = self.kept(sources[known])
        if known.all():
            return old
        first = int(places[~known][0])
        new = self.made.of(first, first + int((~known).sum()))
        if new.shape[1] != old.shape[1]:
            raise UserError(
                f"found vectors of {new.shape[1]} numbers after {old.shape[1]}: the embedding model has changed since "
                "the index was built: build the index again"
            )
        found = np.empty((len(sources), old.shape[1]), np.float32)
        found[known], found[~known] = old, new
        return found


@dataclass(frozen=True, slots=True)
class Selected:
    """Some of the texts, by their rows int64[n]."""

    texts: Texts
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def ids(self, rows: ArrayLike) -> list[str]:
        """Return the ids of rows (int[n])."""
        return self.texts.ids(self.rows[np.asarray(rows)])

    def get(self, rows: ArrayLike) -> list[Document]:
        """Return the texts of rows (int[n])."""
        return self.texts.get(self.rows[np.asarray(rows)])


def _read(texts: Texts, rows: Rows) -> Iterator[tuple[int, Document]]:
    for chunk in chunks(rows, CHUNK_TEXTS):
        yield from zip(chunk.tolist(), texts.get(chunk), strict=True)


def _hash(document: Document) -> bytes:
    return sha256(document.contents.encode()).digest()


def count_long(index: Index, texts: Texts, rows: Rows) -> int:
    """Count the index's texts that are longer than the window of its model, as far as it tells before embedding."""
    if not index.cut:
        return 0
    assert index.embedding is not None
    prefix, embedder, count = index.embedding.passage_prefix, load_embedder(index.embedding), 0
    for chunk in chunks(rows, CHUNK_TEXTS):
        contents = [document.contents for document in texts.get(chunk)]
        count += len(embedder.find_long([prefix + text for text in contents]))
    return count
