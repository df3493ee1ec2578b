"""The passages of documents: the segments of a document store, in the order of documents and of positions.

The file `passages.npy` in an index folder holds the offsets of passages: int64[documents + 1]. They say which passages
belong to which document. The document in row d owns the passages from `offsets[d]` to before `offsets[d + 1]`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, of_one_index
from keystone.indexing.io.writing import map_array, reserve_array
from keystone.indexing.store import DocumentStore
from keystone.indexing.types import Document, Embedding, Progress, silent
from keystone.indexing.vectors.embed import load_embedder
from keystone.indexing.vectors.faiss_index import is_flat, load_dense, make_faiss_index, view_vectors

SAMPLE_DOCUMENTS = 1_000
"""The documents that decide whether an index is one of passages."""

Offsets = NDArray[np.int64]
"""The passages of documents: int64[documents + 1], ascending from 0."""


def write_offsets(store: DocumentStore, path: Path, progress: Progress = silent) -> None:
    """Count the segments of each document, and write the offsets of passages to a new file."""
    offsets = reserve_array(path, np.int64, (len(store) + 1,))
    offsets[0] = 0
    with progress("Counting passages", len(store)) as tick:
        for row, document in enumerate(store):
            offsets[row + 1] = offsets[row] + len(document.segments)
            tick(1)
    offsets.flush()


def prefer_passages(store: DocumentStore, embedding: Embedding) -> bool:
    """Whether most documents have several segments and are longer than the model's window, by an even sample."""
    rows = np.unique(np.linspace(0, len(store) - 1, SAMPLE_DOCUMENTS).astype(np.int64))
    divided = [document.contents for document in store.get(rows) if len(document.segments) > 1]
    longer = load_embedder(embedding).find_long([embedding.passage_prefix + text for text in divided])
    return 2 * len(longer) > len(rows)


def load_offsets(index: Index) -> Offsets:
    """Map the offsets of an index's passages into memory. `UserError` if the file is damaged."""
    try:
        offsets: Offsets = map_array(index.offsets)
        if offsets.shape != ((index.documents or 0) + 1,):
            raise ValueError(f"found the passages of {len(offsets) - 1} documents, expected {index.documents}")
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{index.offsets}: damaged: build the index again: {error}") from error
    return offsets


@dataclass(frozen=True, slots=True)
class PassageIndex:
    """FAISS indexes of passages, which hold consecutive ranges of rows, and the offsets of the passages."""

    parts: Sequence[Any]
    offsets: Offsets

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def dimension(self) -> int:
        """The number of entries in a vector."""
        return int(self.parts[0].d)

    @property
    def is_flat(self) -> bool:
        """Whether the indexes hold the vectors themselves."""
        return all(map(is_flat, self.parts))

    def view(self, first: int, last: int) -> Vectors:
        """Vectors of documents `first` to before `last` of flat indexes, float32[passages, dimension].

        They are valid as long as the parts. They are copied only where they lie in several parts.
        """
        start, stop = self.offsets[[first, last]].tolist()
        found, begin = [], 0
        for part in self.parts:
            end = begin + part.ntotal
            if start < end and begin < stop:
                found.append(view_vectors(part)[max(0, start - begin) : stop - begin])
            begin = end
        return found[0] if len(found) == 1 else np.concatenate([np.empty((0, self.dimension), np.float32), *found])


def hold_passages(documents: Iterable[Vectors], dimension: int) -> PassageIndex:
    """Hold the passages of documents in memory, each document's as float32[passages, dimension]."""
    index, counts = make_faiss_index(dimension, "Flat"), [0]
    for own in documents:
        index.add(own)
        counts.append(len(own))
    return PassageIndex([index], np.cumsum(counts, dtype=np.int64))


def open_passages(index: Index, parameters: str = "", mapped: bool = True) -> PassageIndex:
    """Open the FAISS indexes of passages, on disk if `mapped`. `UserError` for damage or impossible parameters."""

    def open_files() -> PassageIndex:
        parts = [load_dense(file, parameters, mapped, index.chosen_parameters) for file in index.dense_files]
        return PassageIndex(parts, load_offsets(index))

    return index.take(("passages", index.set_name, parameters), open_files)


def open_kept_passages(index: Index) -> PassageIndex | None:
    """Map the vectors of all passages; None if the index lacks them as they are. `UserError` if damaged."""
    if not index.passages or index.faiss != "Flat" or index.at:
        return None
    return of_one_index(open_passages)(index)


@dataclass(frozen=True, slots=True)
class Passages:
    """The passages of a store, each as a document with the id and the text of a segment."""

    store: DocumentStore
    offsets: Offsets

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def ids(self, rows: ArrayLike) -> list[str]:
        """Return the segment ids of passages (int[n])."""
        return [passage.id for passage in self.get(rows)]

    def get(self, rows: ArrayLike) -> list[Document]:
        """Return passages (int[n]) as documents. Errors are those of the store."""
        wanted = np.asarray(rows, dtype=np.int64)
        owners = np.searchsorted(self.offsets, wanted, side="right") - 1
        own = np.unique(owners)
        documents = dict(zip(own.tolist(), self.store.get(own), strict=True))
        return [
            _take_segment(documents[owner], number)
            for owner, number in zip(owners.tolist(), (wanted - self.offsets[owners]).tolist(), strict=True)
        ]


def _take_segment(document: Document, number: int) -> Document:
    segment = document.segments[number]
    return Document(segment.id, document.segment_text(segment))
