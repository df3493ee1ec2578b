"""The dense index: FAISS with inner products, one vector for each document, in the order of rows.

`Flat` is exact. Indexes of other factory strings are trained on a sample that a fixed seed draws. One thread builds the
index, so it has the same bytes on any machine.

Vectors that do not fit in memory at once have a dense index in several files. `dense-0000.faiss`, `dense-0001.faiss`,
... hold contiguous ranges of rows. They are parts of one index. Keystone trains it once, on the same sample as an index
in one file. So the scores of all parts are comparable.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import MissingPackage, UserError
from keystone.indexing.index import shard_files
from keystone.indexing.io.staged import stage
from keystone.indexing.io.writing import write_whole
from keystone.indexing.types import Progress, Tick, silent
from keystone.indexing.vectors.shards import Shards

SEED = 1234
SAMPLE_VECTORS = 65_536
"""The vectors that train an index."""
LIST_SAMPLE_VECTORS = 256
"""The fewest training vectors for each list of an inverted file. FAISS uses no more."""
MOST_GPU_HITS = 2_048
MOST_NEIGHBOURS, MOST_REFINED = 1_024, 64
"""The most that a build tries for `efSearch` and for `k_factor_rf`."""
MULTIPLIED_PARTS = 16
"""If a part of a product quantiser has so many numbers, FAISS multiplies the parts of all queries at once."""
REFINED = 10
"""The candidates for each wanted hit whose scores a refined index computes anew, unless `k_factor_rf` says so."""
UNUSABLE = {
    "IndexIDMap": "it names vectors by ids of its own",
    "IndexIDMap2": "it names vectors by ids of its own",
    "IndexNSG": "it takes all vectors at once, and Keystone adds them in parts",
    "IndexNNDescent": "it takes all vectors at once, and Keystone adds them in parts",
    "IndexLattice": "FAISS does not write its vectors to a file",
    "IndexFlatPanorama": "it finds no more hits than its batches hold vectors",
    "IndexHNSWPQ": "FAISS searches it by distance, not by inner product",
    "IndexHNSW2Level": "FAISS searches it by distance, not by inner product",
}
"""Classes of FAISS that its factory makes for inner products, but that no dense index can be, each with the reason."""

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
    """An empty index of a factory string. `UserError` unless FAISS can search it by inner products."""
    faiss = import_faiss()
    try:
        if _TOO_SMALL.search(factory):
            raise RuntimeError("a number below 2")
        index = faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
        for layer in _list_layers(index):
            for name, reason in UNUSABLE.items():
                if isinstance(layer, getattr(faiss, name)):
                    raise RuntimeError(reason)
        return index
    except RuntimeError as error:
        raise UserError(
            f"FAISS index {factory!r}: {_reason_of(error)}; expected a factory string for vectors of {dimension} "
            "numbers that are searched by inner product, such as Flat, SQ8, HNSW32 or IVF256,Flat"
        ) from error


def _list_layers(index: Any) -> Iterator[Any]:
    """The index, then those below its transformations and refinements, by their classes; valid as long as it is."""
    faiss = import_faiss()
    layer = faiss.downcast_index(index)
    yield layer
    if isinstance(layer, faiss.IndexPreTransform | faiss.IndexIDMap):
        yield from _list_layers(layer.index)
    elif isinstance(layer, faiss.IndexRefine):
        yield from _list_layers(layer.base_index)


def build_dense(shards: Shards, factory: str, path: Path, progress: Progress = silent) -> None:
    """Build the index of all vectors in memory, and write it. `UserError` or `NotWritten` if that fails."""
    with progress("Building the FAISS index", shards.documents) as tick, _name_kind(factory):
        index = train_index(shards, factory)
        fill_index(index, shards, tick)
        write_dense(index, path)


@contextmanager
def _name_kind(factory: str) -> Iterator[None]:
    """Turn an error of FAISS in the block into a `UserError` that names the kind of index."""
    try:
        yield
    except RuntimeError as error:
        raise UserError(
            f"FAISS index {factory!r}: {_reason_of(error)}; expected a kind that takes vectors in parts and that FAISS "
            "writes to a file"
        ) from error


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


def load_dense(path: Path, parameters: str = "", mapped: bool = False, chosen: str = "") -> Any:
    """Read an index and set search parameters such as `nprobe=16`, which override those that its build has `chosen`.

    If `mapped` is true, the index stays on disk. Without parameters, an inverted file searches as many lists as the
    square root of their number. A refined index then computes the scores of `REFINED` candidates for each hit.
    `UserError` if the file is not a whole index, or the index has no such parameter.
    """
    faiss = import_faiss()
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if mapped else 0)
    except RuntimeError as error:
        raise UserError(f"{path}: not a whole FAISS index: build the index again") from error
    inverted = faiss.try_extract_index_ivf(index)
    if inverted:
        inverted.nprobe = round(inverted.nlist**0.5)
    for layer in _list_layers(index):
        if isinstance(layer, faiss.IndexRefine):
            layer.k_factor = REFINED
    set_parameters(index, chosen)
    set_parameters(index, parameters)
    return index


def set_parameters(index: Any, parameters: str) -> None:
    """Set search parameters, such as `nprobe=16,k_factor_rf=4`; an empty text changes none.

    `UserError` for one that the index cannot have.
    """
    faiss = import_faiss()
    if not parameters:
        return
    try:
        faiss.ParameterSpace().set_index_parameters(index, parameters)
        inverted = faiss.try_extract_index_ivf(index)
        if inverted and not 1 <= inverted.nprobe <= inverted.nlist:
            raise RuntimeError(f"expected nprobe from 1 to {inverted.nlist}")
        if any(isinstance(layer, faiss.IndexRefine) and layer.k_factor < 1 for layer in _list_layers(index)):
            raise RuntimeError("expected k_factor_rf of at least 1")
    except RuntimeError as error:
        raise UserError(f"retrieval.faiss: found {parameters!r}: {_reason_of(error)}") from error


def list_parameters(index: Any) -> dict[str, int]:
    """List the search parameters that weigh speed against recall, each with its highest useful value."""
    faiss = import_faiss()
    space = faiss.ParameterSpace()
    space.initialize(index)
    inverted = faiss.try_extract_index_ivf(index)
    most = {"quantizer_efSearch": MOST_NEIGHBOURS, "nprobe": inverted.nlist if inverted else 0}
    most |= {"efSearch": MOST_NEIGHBOURS, "k_factor_rf": MOST_REFINED}
    known = {space.parameter_ranges.at(place).name for place in range(space.parameter_ranges.size())}
    return {name: value for name, value in most.items() if name in known}


def find_graph(index: Any) -> Any:
    """The graph over the vectors of an index, FAISS's `HNSW`, valid while the index is open; None if there is none."""
    faiss = import_faiss()
    return next((layer.hnsw for layer in _list_layers(index) if isinstance(layer, faiss.IndexHNSW)), None)


def is_flat(index: Any) -> bool:
    """Whether an index holds the vectors themselves and searches them exactly."""
    return isinstance(index, import_faiss().IndexFlat)


def view_vectors(index: Any) -> Vectors:
    """The vectors of a `Flat` index, float32[vectors, dimension]: no copy, and valid while the index is open."""
    held: Vectors = import_faiss().rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(-1, index.d)
    return held


def bind_products(queries: Vectors) -> Callable[[Vectors], Vectors]:
    """Bind FAISS's threaded product: from vectors, float32[n, d], to float32[n, queries] with these queries."""
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
        search: Search = partial(_search_singly, index) if _rounds(index) else index.search
        return search
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True
    try:
        copies = faiss.index_cpu_to_all_gpus(index, co=options)
    except RuntimeError:  # FAISS has this kind of index for CPUs alone
        copies = index
    return lambda queries, depth: (copies if depth <= MOST_GPU_HITS else index).search(queries, depth)


def _rounds(index: Any) -> bool:
    """Whether scores vary with other queries and threads: where FAISS multiplies matrices whose products round."""
    faiss = import_faiss()
    alone = (faiss.IndexFlat, faiss.IndexScalarQuantizer, faiss.IndexRaBitQ, faiss.IndexRaBitQFastScan,
             faiss.IndexHNSW, faiss.IndexIVFFlat, faiss.IndexRefine)  # fmt: skip
    parts = (faiss.IndexPQ, faiss.IndexPQFastScan)
    return not all(
        isinstance(layer, alone) or (isinstance(layer, parts) and layer.pq.dsub < MULTIPLIED_PARTS)
        for layer in _list_layers(index)
    )


def _search_singly(index: Any, queries: Vectors, depth: int) -> tuple[Any, Any]:
    """Search each query alone, by one thread: else products are rounded by the number of queries and of threads."""
    faiss = import_faiss()
    with ThreadPoolExecutor(faiss.omp_get_max_threads(), initializer=lambda: faiss.omp_set_num_threads(1)) as pool:
        found = list(pool.map(lambda row: index.search(queries[row : row + 1], depth), range(len(queries))))
    nothing = np.empty((0, depth), np.float32), np.empty((0, depth), np.int64)
    scores, rows = (np.concatenate(columns) for columns in zip(nothing, *found, strict=True))
    return scores, rows


def _reason_of(error: RuntimeError) -> str:
    """The reason at the end of a FAISS error, without the place in FAISS's source."""
    return str(error).strip().rsplit("\n", 1)[-1].rsplit(": ", 1)[-1].strip()


def build_dense_shards(shards: Shards, factory: str, size: int, folder: Path, progress: Progress = silent) -> int:
    """Build the index in files of `size` rows, one in memory at a time, as stages; returns their number.

    Errors are those of `build_dense`.
    """
    faiss = import_faiss()
    files = shard_files(folder, -(-shards.documents // size))
    empty = folder / "trained.faiss"
    starts = range(0, shards.documents, size)

    def make(path: Path, start: int) -> None:
        index = faiss.read_index(str(empty))
        with _name_kind(factory):
            fill_index(index, shards.between(start, start + size))
            write_dense(index, path)

    with progress("Building the FAISS index", shards.documents) as tick:
        with _name_kind(factory):
            stage(folder, empty.name, lambda path: write_dense(train_index(shards, factory), path))
        for start, file in zip(starts, files, strict=True):
            stage(folder, file.name, partial(make, start=start))
            tick(min(size, shards.documents - start))
    return len(files)


def load_dense_shards(files: Sequence[Path]) -> list[Any]:
    """The parts of an index, mapped: only searched pages take memory. Errors are those of `load_dense`."""
    return [load_dense(file, mapped=True) for file in files]


def search_shards(parts: Iterable[Any], queries: Vectors, depth: int) -> tuple[Any, Any]:
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
