"""The dense index: FAISS with inner products, one vector for each document, in the order of rows.

`Flat` is exact. Indexes of other factory strings are trained on a sample that a fixed seed draws. One thread builds the
index, so it has the same bytes on any machine.

Vectors that do not fit in memory at once have a dense index in several files. `dense-0000.faiss`, `dense-0001.faiss`,
... hold contiguous ranges of rows. They are parts of one index. Keystone trains it once, on the same sample as an index
in one file. So the scores of all parts are comparable.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keystone.indexing.errors import MissingPackage, UserError
from keystone.indexing.index import shard_files
from keystone.indexing.io.staged import stage
from keystone.indexing.io.writing import write_whole
from keystone.indexing.types import Progress, Tick, silent
from keystone.indexing.vectors.shards import Shards
from keystone.indexing.vectors.types import Vectors

SEED = 1234
SAMPLE_VECTORS = 65_536
"""The vectors that train an index."""
LIST_SAMPLE_VECTORS = 256
"""The least training vectors for each list of an inverted file. FAISS uses no more."""
MOST_GPU_HITS = 2_048
"""The most hits for a query that FAISS finds on GPUs."""

_NEEDED = re.compile(r"should be at least as large as number of clusters \((\d+)\)")

_TOO_SMALL = re.compile(r"[A-Za-z]0*[01](?!\d)")
"""Matches index types that FAISS accepts and then fails on; some of them end the process."""

Search = Callable[[Vectors, int], tuple[Any, Any]]
"""Finds the scores (float32[queries, depth]) and rows (int64[queries, depth], -1 after the last hit) of queries."""


def import_faiss() -> Any:
    """Import FAISS, from faiss-cpu or faiss-gpu. `MissingPackage` if neither is installed."""
    try:
        import faiss
    except ImportError as error:
        raise MissingPackage("FAISS is needed for dense search: pip install faiss-cpu, or faiss-gpu") from error
    return faiss


def make_faiss_index(dimension: int, factory: str) -> Any:
    """An empty index from FAISS's factory string. `UserError` if FAISS knows no such index."""
    faiss = import_faiss()
    try:
        if _TOO_SMALL.search(factory):
            raise RuntimeError("a number below 2")
        return faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise UserError(
            f"FAISS index {factory!r}: {_reason_of(error)}; expected a factory string for vectors of {dimension} "
            "numbers, such as Flat, HNSW32 or IVF256,Flat"
        ) from error


def build_dense(shards: Shards, factory: str, path: Path, progress: Progress = silent) -> None:
    """Build the index of all vectors in memory, and write it.

    `UserError` if FAISS cannot train it. `NotWritten` if the disk does not take it.
    """
    with progress("Building the FAISS index", shards.documents) as tick:
        index = train_index(shards, factory)
        fill_index(index, shards, tick)
    write_dense(index, path)


def train_index(shards: Shards, factory: str) -> Any:
    """An empty index. If its type needs training, it is trained on a sample. `UserError` if FAISS cannot train it."""
    faiss = import_faiss()
    index = make_faiss_index(shards.dimension, factory)
    faiss.omp_set_num_threads(1)
    try:
        if not index.is_trained:
            inverted = faiss.try_extract_index_ivf(index)
            index.train(
                shards.sample(
                    max(SAMPLE_VECTORS, LIST_SAMPLE_VECTORS * inverted.nlist) if inverted else SAMPLE_VECTORS, SEED
                )
            )
    except RuntimeError as error:
        needed = _NEEDED.search(str(error))
        expected = f"at least {needed[1]} for this index" if needed else f"another index: {_reason_of(error)}"
        raise UserError(f"FAISS index {factory!r}: found {shards.documents} documents, expected {expected}") from error
    return index


def fill_index(index: Any, parts: Iterable[Vectors], tick: Tick = lambda _: None) -> None:
    """Add vectors to an index, by one thread."""
    import_faiss().omp_set_num_threads(1)
    for vectors in parts:
        index.add(np.ascontiguousarray(vectors))
        tick(len(vectors))


def write_dense(index: Any, path: Path) -> None:
    """Write an index, whole or not at all. `NotWritten` if the disk does not take it."""
    faiss = import_faiss()
    with write_whole(path) as out:  # FAISS's own writer loses the error of its last bytes
        faiss.write_index(index, faiss.PyCallbackIOWriter(out.write, 2**20))


def load_dense(path: Path, parameters: str = "", mapped: bool = False) -> Any:
    """Read an index and set search parameters such as `nprobe=16`. If `mapped` is true, the index stays on disk.

    Without parameters, an inverted file searches as many lists as the square root of their number. `UserError` if the
    file is no whole index, or the index has no such parameter.
    """
    faiss = import_faiss()
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if mapped else 0)
    except RuntimeError as error:
        raise UserError(f"{path}: not a whole FAISS index: build the index again") from error
    inverted = faiss.try_extract_index_ivf(index)
    if inverted:
        inverted.nprobe = round(inverted.nlist**0.5)
    if parameters:
        try:
            faiss.ParameterSpace().set_index_parameters(index, parameters)
            if inverted and not 1 <= inverted.nprobe <= inverted.nlist:
                raise RuntimeError(f"expected nprobe from 1 to {inverted.nlist}")
        except RuntimeError as error:
            raise UserError(f"retrieval.faiss: found {parameters!r}: {_reason_of(error)}") from error
    return index


def is_flat(index: Any) -> bool:
    """Whether an index holds the vectors themselves and searches them exactly."""
    return isinstance(index, import_faiss().IndexFlat)


def view_vectors(index: Any) -> Vectors:
    """The vectors of a `Flat` index, float32[vectors, dimension]: no copy, and valid as long as the index."""
    held: Vectors = import_faiss().rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(-1, index.d)
    return held


def bind_products(queries: Vectors) -> Callable[[Vectors], Vectors]:
    """The function from vectors, float32[n, d], to their inner products with these queries: float32[n, queries].

    FAISS multiplies with its own threads.
    """
    faiss = import_faiss()
    product = faiss.LinearTransform(queries.shape[1], len(queries), False)
    faiss.copy_array_to_vector(queries.ravel(), product.A)
    product.is_trained = True
    multiply: Callable[[Vectors], Vectors] = product.apply
    return multiply


def bind_search(index: Any) -> Search:
    """The search function of an index. If FAISS can use GPUs, each GPU holds a part of the vectors."""
    faiss = import_faiss()
    if not getattr(faiss, "get_num_gpus", int)():
        search: Search = index.search
        return search
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True
    try:
        copies = faiss.index_cpu_to_all_gpus(index, co=options)
    except RuntimeError:  # FAISS has this kind of index for CPUs alone
        copies = index
    return lambda queries, depth: (copies if depth <= MOST_GPU_HITS else index).search(queries, depth)


def _reason_of(error: RuntimeError) -> str:
    """The reason at the end of a FAISS error, without the place in FAISS's source."""
    return str(error).strip().rsplit("\n", 1)[-1].rsplit(": ", 1)[-1].strip()


def build_dense_shards(shards: Shards, factory: str, size: int, folder: Path, progress: Progress = silent) -> int:
    """Build the index in files of `size` rows each, with one file in memory at a time. Returns the number of files.

    Files that an earlier try has made stay as they are. Errors are those of `build_dense`.
    """
    faiss = import_faiss()
    files = shard_files(folder, -(-shards.documents // size))
    empty = folder / "trained.faiss"
    starts = range(0, shards.documents, size)

    def make(path: Path, start: int) -> None:
        index = faiss.read_index(str(empty))
        fill_index(index, shards.between(start, start + size))
        write_dense(index, path)

    with progress("Building the FAISS index", shards.documents) as tick:
        stage(folder, empty.name, lambda path: write_dense(train_index(shards, factory), path))
        for start, file in zip(starts, files, strict=True):
            stage(folder, file.name, partial(make, start=start))
            tick(min(size, shards.documents - start))
    return len(files)


def load_dense_shards(files: Sequence[Path], parameters: str = "") -> list[Any]:
    """The parts of an index, mapped: only searched pages take memory, and the system can reclaim it.

    Errors are those of `load_dense`.
    """
    return [load_dense(file, parameters, mapped=True) for file in files]


def search_shards(parts: Sequence[Any], queries: Vectors, depth: int) -> tuple[Any, Any]:
    """The scores, float32[queries, depth], and rows, int64[queries, depth], of the best hits of all parts together.

    The parts are searched one after the other. If FAISS has GPUs, only one part at a time lies there. An exact index
    misses a row only if the row's score is not above that of the last hit.
    """
    best = import_faiss().ResultHeap(len(queries), depth, keep_max=True)
    start = 0
    for part in parts:
        if not part.ntotal:
            continue
        scores, rows = bind_search(part)(queries, min(depth, part.ntotal))
        best.add_result(scores, np.where(rows < 0, rows, rows + start))
        start += part.ntotal
    best.finalize()
    return best.D, best.I
