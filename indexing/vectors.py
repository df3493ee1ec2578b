"""The vectors of all documents in shards, which make embedding a corpus resumable.

A shard is `NNNNNNNN.npy` (float32[documents, dimension]) and, written after it, `NNNNNNNN.json` with the SHA-256
of its bytes and the number of documents whose text was cut. A shard that does not agree with its note is made anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

from indexing.embed import Embedding, TextRefused, Vectors, embed_passages
from indexing.errors import UserError
from indexing.files import sha256, written
from indexing.store import DocumentStore
from indexing.types import Progress, Tick, silent

SHARD = 4_096
"""Documents of a shard: what is in memory while they are embedded, and what a stop can cost."""


@dataclass(frozen=True, slots=True)
class Shards:
    """The vectors on disk: their files in the order of rows, how many documents they stand for, how many were cut."""

    files: list[Path]
    documents: int
    cut: int

    @property
    def dimension(self) -> int:
        """Entries of a vector."""
        return int(self._open(0).shape[1])

    def __iter__(self) -> Iterator[Vectors]:
        for number in range(len(self.files)):
            vectors = self._open(number)
            if vectors.shape[1] != self.dimension:
                raise UserError(
                    f"{self.files[number]}: found vectors of {vectors.shape[1]} numbers after {self.dimension}: "
                    "the model has changed: remove the folder and begin again"
                )
            yield vectors

    def of(self, start: int, stop: int) -> Vectors:
        """The vectors of the rows from `start` to before `stop`."""
        shards = range(start // SHARD, (stop - 1) // SHARD + 1)
        parts = [self._open(i)[max(0, start - i * SHARD) : stop - i * SHARD] for i in shards]
        return np.asarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)

    def sample(self, count: int, seed: int) -> Vectors:
        """At most `count` of the vectors, drawn at random, in the order of rows."""
        count = min(count, self.documents)
        rows = np.sort(np.random.default_rng(seed).choice(self.documents, count, replace=False))
        shards = [np.array(vectors[rows[rows // SHARD == i] % SHARD]) for i, vectors in enumerate(self)]
        return np.concatenate(shards)

    def _open(self, number: int) -> Vectors:
        vectors: Vectors = np.load(self.files[number], mmap_mode="r")
        return vectors


def embed_store(
    store: DocumentStore, embedding: Embedding, folder: Path, threads: int, progress: Progress = silent
) -> Shards:
    """Embed title and text of all documents, leaving out the shards that `folder` holds already."""
    folder.mkdir(exist_ok=True)
    files, cuts = [], 0
    with progress("Embedding documents", len(store)) as tick:
        for start in range(0, len(store), SHARD):
            rows = range(start, min(start + SHARD, len(store)))
            file = folder / f"{start // SHARD:08d}.npy"
            cut = _cut_in(file)
            if cut is None:
                cut = _write_shard(store, rows, embedding, file, threads, tick)
            else:
                tick(len(rows))
            files.append(file)
            cuts += cut
    return Shards(files, len(store), cuts)


def _write_shard(store: DocumentStore, rows: range, embedding: Embedding, file: Path, threads: int, tick: Tick) -> int:
    cut: list[int] = []
    texts = [document.contents for document in store.get(rows)]
    try:
        vectors = embed_passages(embedding, texts, threads, tick, cut.append)
    except TextRefused as error:
        raise UserError(f"document {store.ids([rows[error.position]])[0]}: {error}") from error
    with written(file) as out:
        np.save(out, vectors)
    with written(file.with_suffix(".json")) as out:
        out.write(orjson.dumps({"sha256": sha256(file), "cut": len(cut)}))
    return len(cut)


def _cut_in(file: Path) -> int | None:
    """How many documents of a shard were cut; None if there is no such shard, or not a whole one."""
    try:
        note = orjson.loads(file.with_suffix(".json").read_bytes())
        return int(note["cut"]) if note["sha256"] == sha256(file) else None
    except (OSError, UserError, ValueError, KeyError, TypeError):
        return None
