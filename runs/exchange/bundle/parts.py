"""The parts of an index that a run uses: its documents, and the vectors of its texts.

Both stand for the index while a bundle is made and while a run is reproduced.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keystone.indexing.index import Index
from keystone.indexing.io.writing import map_array
from keystone.indexing.types import RECORDED_LOCAL, Document, Embedding, Tick
from keystone.indexing.vectors.types import GRID_STEP, ReportCut, Vectors

KEYS, VECTORS = "keys.npy", "vectors.npy"
"""The files of vectors in their folder."""
HASH_BYTES = 32


class PartStore:
    """The store of some ids of a larger store; see `keystone.indexing.types.Store`. `read` reads documents by id.

    The order of rows is that of the larger store.
    """

    def __init__(self, ids: Iterable[str], read: Callable[[Sequence[str]], list[Document]]) -> None:
        self._ids = sorted(set(ids), key=str.encode)
        self._row = {name: row for row, name in enumerate(self._ids)}
        self._read = read

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Document]:
        """Yield all documents by row."""
        for row in range(len(self)):
            yield from self.get([row])

    def ids(self, rows: ArrayLike) -> list[str]:
        """Return the document ids of rows (int[n]). `IndexError` for a row that is not in the store."""
        wanted = np.asarray(rows, dtype=np.int64).tolist()
        if min(wanted, default=0) < 0:
            raise IndexError(f"row {min(wanted)} is not in the store")
        return [self._ids[row] for row in wanted]

    def rows(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the rows (int32[n]) of document ids; -1 for an id that is not in the store."""
        return np.array([self._row.get(name, -1) for name in ids], dtype=np.int32)

    def get(self, rows: ArrayLike) -> list[Document]:
        """Return the documents of rows (int[n]). `IndexError` for a row that is not in the store."""
        return self._read(self.ids(rows))


class KnownVectors:
    """An embedder of texts whose vectors are known; see `keystone.indexing.vectors.types.Embedder`.

    `known` has float32[dimension] by the hash of a text. `find` finds the vectors of texts that are not known yet, and
    they are known from then on.
    """

    def __init__(
        self, dimension: int, find: Callable[[Sequence[str]], Iterable[Vectors]], known: dict[bytes, Vectors]
    ) -> None:
        self.dimension, self.known, self._find, self._lock = dimension, known, find, Lock()

    def find_long(self, _texts: Sequence[str]) -> list[int]:
        """The positions of texts that are longer than the model's window: nobody knows any."""
        return []

    def embed(
        self, texts: Sequence[str], _threads: int = 1, tick: Tick = lambda _: None, _cut: ReportCut = lambda _: None
    ) -> Vectors:
        """The vectors of texts, float32[len(texts), dimension]. Errors are those of `find`."""
        keys = list(map(hash_text, texts))
        with self._lock:
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self.known}
            if missing:
                self.known |= zip(missing, self._find(list(missing.values())), strict=True)
        tick(len(texts))
        return np.array([self.known[key] for key in keys], np.float32).reshape(len(texts), self.dimension)


def hash_text(text: str) -> bytes:
    """The key of a text's vector: its SHA-256, bytes[32]."""
    return sha256(text.encode(errors="surrogatepass")).digest()


def describe_index(index: Index) -> dict[str, Any]:
    """Describe the facts about an index on which the later stages depend, as JSON."""
    prefixes = index.embedding and [index.embedding.query_prefix, index.embedding.passage_prefix]
    local = {"local": True} if index.embedding and index.embedding.is_local else {}
    return {"key": index.key, "documents": index.documents, "prefixes": prefixes, **local}


def open_sealed_index(facts: Mapping[str, Any], folder: Path) -> Index:
    """Open the index of such a description. It cannot be searched, and only a stand-in can make its embeddings.

    `folder` is for the files that the stages keep beside an index.
    """
    query, passage = facts["prefixes"] or ("", "")
    model = RECORDED_LOCAL if facts.get("local") else "recorded"
    embedding = Embedding(model, query_prefix=query, passage_prefix=passage) if facts["prefixes"] else None
    return Index(folder, facts["key"], embedding, facts["documents"], {}, 0, None)


def save_vectors(path: Path, known: dict[bytes, Vectors]) -> None:
    """Save vectors by the hashes of their texts, in a folder: hashes as uint8[n, 32], vectors as int16[n, dimension].

    Entries are counted in steps of the grid, which keeps their bits.
    """
    path.mkdir()
    keys = sorted(known)
    np.save(path / KEYS, np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), HASH_BYTES))
    np.save(path / VECTORS, (np.array([known[key] for key in keys]) / GRID_STEP).astype(np.int16))


def load_vectors(path: Path) -> dict[bytes, Vectors]:
    """Load the vectors that `save_vectors` saved. `ValueError` if a file is not what it says."""
    keys, steps = (map_array(path / name) for name in (KEYS, VECTORS))
    if (keys.dtype, keys.shape[1:], steps.dtype) != (np.dtype(np.uint8), (HASH_BYTES,), np.dtype(np.int16)):
        raise ValueError(f"{KEYS} and {VECTORS}: found {keys.dtype}{keys.shape} and {steps.dtype}{steps.shape}")
    vectors = steps.astype(np.float32) * np.float32(GRID_STEP)
    return dict(zip(map(bytes, keys), vectors, strict=True))
