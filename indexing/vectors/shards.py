"""The vectors of all documents, or of all passages, in shards, so that embedding can continue after a stop.

A shard is `NNNNNNNN.npy`, float32[documents, dimension], and a note that is written after it, `NNNNNNNN.json`. The note
holds the SHA-256 of the shard and the number of documents whose text was cut. If the two disagree, the shard is made
again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol

import numpy as np
import orjson
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from keystone.indexing.embedder import ONE_THREAD, Effort, Forecast, Vectors
from keystone.indexing.errors import NotWritten, TextRefused, UserError
from keystone.indexing.io.reading import hash_file
from keystone.indexing.io.writing import write_whole
from keystone.indexing.types import Document, Embedding, Tick, chunks
from keystone.indexing.vectors.embed import embed_passages, load_embedder

SHARD_DOCUMENTS = 4_096
"""The documents of a shard. Their texts are in memory at once; if the process stops, their vectors are lost."""


STEP = "Embedding documents"


@dataclass(frozen=True, slots=True)
class Shards:
    """The vectors on disk: their files in the order of rows, the number of documents, and the number of cut ones."""

    files: list[Path]
    documents: int
    cut: int

    @property
    def dimension(self) -> int:
        """The number of entries of a vector."""
        return int(self._open(0).shape[1])

    def __iter__(self) -> Iterator[Vectors]:
        return map(self._open_checked, range(-(-self.documents // SHARD_DOCUMENTS)))

    def _open_checked(self, number: int) -> Vectors:
        vectors = self._open(number)
        if vectors.shape[1] != self.dimension:
            raise UserError(
                f"{self.files[number]}: found vectors of {vectors.shape[1]} numbers after {self.dimension}: "
                "the model has changed: remove the folder and begin again"
            )
        return vectors

    def between(self, start: int, stop: int) -> Iterator[Vectors]:
        """The vectors of the rows from `start` to before `stop`, in order: parts of float32[rows, dimension]."""
        for number, vectors in enumerate(self):
            first = number * SHARD_DOCUMENTS
            if first < stop and first + len(vectors) > start:
                yield vectors[max(0, start - first) : stop - first]

    def of(self, start: int, stop: int) -> Vectors:
        """The vectors of the rows from `start` to before `stop`, float32[stop - start, dimension]."""
        shards = range(start // SHARD_DOCUMENTS, (stop - 1) // SHARD_DOCUMENTS + 1)
        parts = [self._open(i)[max(0, start - i * SHARD_DOCUMENTS) : stop - i * SHARD_DOCUMENTS] for i in shards]
        return np.asarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)

    def sample(self, count: int, seed: int) -> Vectors:
        """At most `count` vectors, drawn at random and in the order of rows: float32[count, dimension]."""
        count = min(count, self.documents)
        return self.take(np.sort(np.random.default_rng(seed).choice(self.documents, count, replace=False)))

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        """The vectors of `rows`, int64[n], in their order: float32[n, dimension]."""
        found, places = np.empty((len(rows), self.dimension), np.float32), rows // SHARD_DOCUMENTS
        for number in np.unique(places).tolist():
            own = places == number
            found[own] = self._open_checked(number)[rows[own] % SHARD_DOCUMENTS]
        return found

    def _open(self, number: int) -> Vectors:
        vectors: Vectors = np.load(self.files[number], mmap_mode="r")
        return vectors


class Texts(Protocol):
    """The documents that an index embeds: a document store, or its passages, each as a document."""

    def __len__(self) -> int: ...

    def ids(self, rows: ArrayLike) -> list[str]:
        """Return the ids of rows (int[n])."""

    def get(self, rows: ArrayLike) -> list[Document]:
        """Return the documents of rows (int[n])."""


EmbeddedShard = tuple[range, Vectors, int]
"""A shard: its rows of the store, their vectors, and how many of the documents were cut."""

Embed = Callable[[Texts, Embedding, Sequence[range], int, Tick], Iterator[EmbeddedShard]]
"""Embeds shards as `embed_shards` does, in any order."""


def embed_shards(
    store: Texts, embedding: Embedding, shards: Sequence[range], threads: int = 1, tick: Tick = lambda _: None
) -> Iterator[EmbeddedShard]:
    """Embed title and text of the documents of each shard. `UserError` if the model refuses a document."""
    for rows in shards:
        try:
            vectors, cut = embed_texts(embedding, read_contents(store, rows), threads, tick)
        except TextRefused as error:
            raise refusal_error(store, rows, error.position, str(error)) from error
        yield rows, vectors, cut


def read_contents(store: Texts, rows: range) -> list[str]:
    """Title and text of each document of a shard."""
    return [document.contents for document in store.get(rows)]


def embed_texts(
    embedding: Embedding, texts: Sequence[str], threads: int = 1, tick: Tick = lambda _: None
) -> tuple[Vectors, int]:
    """Vectors of texts, float32[len(texts), dimension], and how many were cut; errors as from `embed_passages`."""
    cut: list[int] = []
    vectors = embed_passages(embedding, texts, threads, tick, cut.append)
    return vectors, len(cut)


def refusal_error(store: Texts, rows: range, position: int, reason: str) -> UserError:
    """The error for a text of a shard that the model refuses, with the id of its document."""
    return UserError(f"document {store.ids([rows[position]])[0]}: {reason}")


def embed_store(
    store: Texts,
    embedding: Embedding,
    folder: Path,
    effort: Effort = ONE_THREAD,
    embed: Embed | None = None,
) -> Shards:
    """Embed title and text of all documents, except the shards that `folder` holds already.

    `embed` is that of an engine; None embeds in this process. Before long work, `effort.foretell` receives what it will
    take. `UserError` if the model refuses a document. `NotWritten` if the disk lacks the space.
    """
    folder.mkdir(exist_ok=True)
    shards = list(chunks(range(len(store)), SHARD_DOCUMENTS))
    files = [folder / f"{number:08d}.npy" for number in range(len(shards))]
    known = {rows.start: _read_cut_count(file) for rows, file in zip(shards, files, strict=True)}
    cuts = {start: cut for start, cut in known.items() if cut is not None}
    missing = [rows for rows in shards if rows.start not in cuts]
    if missing and effort.foretell:
        _foretell(store, embedding, missing, effort, is_tried=embed is None and not embedding.url)
    with effort.progress(STEP, len(store)) as tick:
        tick(len(store) - sum(map(len, missing)))
        made = (embed or embed_shards)(store, embedding, missing, effort.threads, tick) if missing else ()
        for rows, vectors, cut in made:
            try:
                _write_shard(files[rows.start // SHARD_DOCUMENTS], vectors, cut)
            except NotWritten as error:
                size = len(store) * vectors.shape[1] * vectors.itemsize / 1e6
                raise NotWritten(error.path, f"{error.reason}; all vectors take {size:,.1f} MB") from error
            cuts[rows.start] = cut
    return Shards(files, len(store), sum(cuts.values()))


def _foretell(store: Texts, embedding: Embedding, missing: Sequence[range], effort: Effort, *, is_tried: bool) -> None:
    """Foretell the embedding of the missing shards. Only a model of this process is tried, since others cost money."""
    rows = np.concatenate([np.arange(own.start, own.stop) for own in missing])

    def measure(places: Sequence[int]) -> int:
        texts = [document.contents for document in store.get(rows[places])]
        return int(embed_passages(embedding, texts, effort.threads).nbytes)

    if is_tried:
        foretell(STEP, len(rows), effort, measure)
    elif effort.foretell:
        size = len(rows) * load_embedder(embedding).dimension * np.dtype(np.float32).itemsize
        effort.foretell(Forecast(STEP, len(rows), size, None))


def _write_shard(file: Path, vectors: Vectors, cut: int) -> None:
    whole = np.ascontiguousarray(vectors)
    with write_whole(file) as out:  # `np.save` would lose the reason of a failure, such as a full disk
        npy.write_array_header_1_0(out, npy.header_data_from_array_1_0(whole))
        out.write(whole.data)
    with write_whole(file.with_suffix(".json")) as out:
        out.write(orjson.dumps({"sha256": hash_file(file), "cut": cut}))


def _read_cut_count(file: Path) -> int | None:
    """The number of cut documents of a shard; None if the shard is missing or not whole."""
    try:
        note = orjson.loads(file.with_suffix(".json").read_bytes())
        return int(note["cut"]) if note["sha256"] == hash_file(file) else None
    except (OSError, UserError, ValueError, KeyError, TypeError):
        return None


FIRST_TEXTS = 8
"""The texts of the first trial. Each next one has twice as many."""
TRIAL_SECONDS = 0.5
"""A trial of this length is the last one: its speed is that of the whole work."""
TRIED_SHARE = 1 / 32
"""The largest share of all texts that a trial reads. Less work ends soon and is not tried."""


def foretell(step: str, texts: int, effort: Effort, measure: Callable[[Sequence[int]], int]) -> None:
    """Foretell a step over so many texts: `measure` makes its result for the texts in some places, in bytes.

    The trials take texts from everywhere, so their lengths are those of the whole. Nothing is tried if nobody wants a
    forecast, or if there are too few texts for one.
    """
    count = FIRST_TEXTS
    while effort.foretell and count <= texts * TRIED_SHARE:
        places = np.linspace(0, texts - 1, count).astype(np.int64).tolist()
        begun = perf_counter()
        size = measure(places)
        if (spent := perf_counter() - begun) > TRIAL_SECONDS or 2 * count > texts * TRIED_SHARE:
            effort.foretell(Forecast(step, texts, size * texts // count, spent * texts / count))
            return
        count *= 2
