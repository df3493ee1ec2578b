"""Vectors of segments: those of the index's passages. An index without passages gets them when a run needs them.

Keystone then keeps them in the index's `segments.sqlite`. The segments of a document are embedded as one batch, so a
vector does not depend on the run that made it.

Vectors of sentences are made when a run first needs them, and kept in the index's `sentences.sqlite`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Protocol, runtime_checkable

import numpy as np

from keystone.indexing.embedder import Vectors
from keystone.indexing.index import Index
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.kept import Kept, hash_parts, open_kept
from keystone.indexing.types import WORDS, Embedding, Progress, Store, chunks, silent
from keystone.indexing.vectors.embed import embed_passages, load_embedder
from keystone.indexing.vectors.passages import open_kept_passages

MakeVectors = Callable[[Sequence[int]], Iterable[Vectors]]
"""Makes the vectors of the groups with these numbers, in order."""
_MAKING: dict[bytes, Lock] = {}
"""A lock for each model, by its digest. The model of a bundle asks that of the index, so they must not share one."""


class VectorCache:
    """A cache of vectors in an open SQLite file beside the index; `open_cache` opens one.

    A key is the hash of `Embedding.made_by` and of the texts that the model embedded together. So a user may delete a
    file at any time or copy it between indexes, and several processes may share it.
    """

    def __init__(self, kept: Kept, embedding: Embedding) -> None:
        self._kept, self._embedding, self._dimension = kept, embedding, load_embedder(embedding).dimension

    def fill(self, groups: Sequence[Sequence[str]], make: MakeVectors) -> list[Vectors]:
        """The vectors of each group of texts, float32[texts of the group, dimension].

        One call of `make` makes the vectors that the file lacks, those of each group once. Then the file holds them.
        While a model of this machine makes vectors, other threads wait, and then find those that they share with it.
        """
        keys = [hash_texts(self._embedding, texts) for texts in groups]
        first = {key: number for number, key in reversed(list(enumerate(keys)))}
        shapes = {key: (len(groups[number]), self._dimension) for key, number in first.items()}
        found = self._get(shapes)
        if len(found) < len(shapes):
            with nullcontext() if self._embedding.url else _MAKING.setdefault(_digest_model(self._embedding), Lock()):
                found |= self._get({key: shape for key, shape in shapes.items() if key not in found})
                missing = sorted(number for key, number in first.items() if key not in found)
                made = {keys[number]: vectors for number, vectors in zip(missing, make(missing), strict=True)}
                self._kept.put({key: vectors.tobytes() for key, vectors in made.items()})
            found |= made
        return [found[key] for key in keys]

    def _get(self, shapes: Mapping[bytes, tuple[int, int]]) -> dict[bytes, Vectors]:
        """The vectors of those keys that the file holds, undamaged and of these shapes."""
        return {
            key: np.frombuffer(content, dtype=np.float32).reshape(shapes[key])
            for key, content in self._kept.get(list(shapes)).items()
            if len(content) == 4 * shapes[key][0] * shapes[key][1]
        }


@contextmanager
def open_cache(path: Path, embedding: Embedding) -> Iterator[VectorCache]:
    """The cache in a file, or in memory for words and as `open_kept` says. `UserError` if the file is damaged."""
    with open_kept(Path(":memory:") if embedding == WORDS else path) as kept:
        yield VectorCache(kept, embedding)


def hash_texts(embedding: Embedding, texts: Sequence[str]) -> bytes:
    """The key of the vectors of some texts that a model embeds together: a SHA-256, bytes[32]."""
    return hash_parts(_digest_model(embedding), texts)


@cache
def _digest_model(embedding: Embedding) -> bytes:
    return digest(embedding.made_by).encode()


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
    """Vectors of segments, float32[segments, dimension], by row: by the index's model, or by words."""
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
        for chunk in chunks(wanted, CHUNK_DOCUMENTS):
            documents = store.get(chunk)
            texts = [[document.segment_text(segment) for segment in document.segments] for document in documents]

            def make(missing: Sequence[int], texts: Sequence[Sequence[str]] = texts) -> Iterable[Vectors]:
                return pool.map(embed, [texts[i] for i in missing])

            found |= zip(chunk, cache.fill(texts, make), strict=True)
            tick(len(chunk))
    return found


def sentence_vectors(index: Index, texts: Sequence[str], threads: int = 1) -> Vectors:
    """Vectors of texts by the index's model, or by words: float32[len(texts), dimension]. Each is made once."""
    embedding = index.compares_by

    def make(missing: Sequence[int]) -> Vectors:
        return embed_passages(embedding, [texts[i] for i in missing], threads)[:, None]

    with open_cache(index.folder / "sentences.sqlite", embedding) as cache:
        found = cache.fill([[text] for text in texts], make)
    return np.concatenate([np.empty((0, load_embedder(embedding).dimension), np.float32), *found])
