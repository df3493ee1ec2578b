"""The dense index: FAISS, inner product, one vector a document in the order of rows.

`Flat` is exact. Other factory strings are trained on a sample drawn with a fixed seed and built by one thread,
so that an index has the same bytes wherever it is built.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from indexing.errors import MissingPackage, UserError
from indexing.io.writing import write_whole
from indexing.types import Progress, Tick, silent
from indexing.vectors.shards import Shards
from indexing.vectors.types import Vectors

SEED = 1234
SAMPLE = 65_536
LIST_SAMPLE = 256
"""Training vectors: `SAMPLE`, and at least `LIST_SAMPLE` for each list of an inverted file; FAISS uses no more."""
GPU_DEPTH = 2_048
"""The deepest search of FAISS on GPUs."""

_NEEDED = re.compile(r"should be at least as large as number of clusters \((\d+)\)")

_TOO_SMALL = re.compile(r"[A-Za-z]0*[01](?!\d)")
"""Index types that FAISS accepts and then fails on; some of them end the process."""

Search = Callable[[Vectors, int], tuple[Any, Any]]
"""Scores (float32[queries, depth]) and rows (int64[queries, depth], -1 after the last hit)."""


def faiss_module() -> Any:
    """FAISS, from either of the two exclusive packages."""
    try:
        import faiss
    except ImportError as error:
        raise MissingPackage("FAISS is needed for dense search: pip install faiss-cpu, or faiss-gpu") from error
    return faiss


def new_index(dimension: int, factory: str) -> Any:
    """An empty index by FAISS's factory string. `UserError` if FAISS knows no such index."""
    faiss = faiss_module()
    try:
        if _TOO_SMALL.search(factory):
            raise RuntimeError("a number below 2")
        return faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise UserError(
            f"FAISS index {factory!r}: {_reason(error)}; expected a factory string for vectors of {dimension} "
            "numbers, such as Flat, HNSW32 or IVF256,Flat"
        ) from error


def build_dense(shards: Shards, factory: str, path: Path, progress: Progress = silent) -> None:
    """Make the index from all vectors, in memory, and write it. `UserError` if FAISS cannot be trained on them."""
    with progress("Building the FAISS index", shards.documents) as tick:
        index = trained(shards, factory)
        fill(index, shards, tick)
    write_dense(index, path)


def trained(shards: Shards, factory: str) -> Any:
    """An empty index; if its type needs training, trained on a sample. `UserError` if FAISS cannot train it."""
    faiss = faiss_module()
    index = new_index(shards.dimension, factory)
    faiss.omp_set_num_threads(1)
    try:
        if not index.is_trained:
            inverted = faiss.try_extract_index_ivf(index)
            index.train(shards.sample(max(SAMPLE, LIST_SAMPLE * inverted.nlist) if inverted else SAMPLE, SEED))
    except RuntimeError as error:
        needed = _NEEDED.search(str(error))
        expected = f"at least {needed[1]} for this index" if needed else f"another index: {_reason(error)}"
        raise UserError(f"FAISS index {factory!r}: found {shards.documents} documents, expected {expected}") from error
    return index


def fill(index: Any, parts: Iterable[Vectors], tick: Tick = lambda _: None) -> None:
    """Add vectors to an index, by one thread."""
    faiss_module().omp_set_num_threads(1)
    for vectors in parts:
        index.add(np.ascontiguousarray(vectors))
        tick(len(vectors))


def write_dense(index: Any, path: Path) -> None:
    """Write an index, whole or not at all. `NotWritten` if the disk does not take it."""
    faiss = faiss_module()
    with write_whole(path) as out:  # FAISS's own writer loses the error of its last bytes
        faiss.write_index(index, faiss.PyCallbackIOWriter(out.write, 2**20))


def load_dense(path: Path, parameters: str = "", mapped: bool = False) -> Any:
    """The index as FAISS reads it, with search parameters such as `nprobe=16`; `mapped` leaves it on disk.

    Without parameters, an inverted file looks into as many lists as the square root of their number. `UserError` if the
    file is not a whole index, or has no such parameter.
    """
    faiss = faiss_module()
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
            raise UserError(f"retrieval.faiss: found {parameters!r}: {_reason(error)}") from error
    return index


def search_of(index: Any) -> Search:
    """The search of an index. If FAISS can use GPUs, each GPU holds a part of the vectors."""
    faiss = faiss_module()
    if not getattr(faiss, "get_num_gpus", int)():
        search: Search = index.search
        return search
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True
    try:
        copies = faiss.index_cpu_to_all_gpus(index, co=options)
    except RuntimeError:  # a kind of index that FAISS has for CPUs alone
        copies = index
    return lambda queries, depth: (copies if depth <= GPU_DEPTH else index).search(queries, depth)


def _reason(error: RuntimeError) -> str:
    """The last words of a FAISS error, without the place in its source."""
    return str(error).strip().rsplit("\n", 1)[-1].rsplit(": ", 1)[-1].strip()
