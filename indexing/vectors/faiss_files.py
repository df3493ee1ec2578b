"""The dense index in several files, for vectors that do not fit in memory at once.

`dense-0000.faiss`, `dense-0001.faiss`, ... hold contiguous ranges of rows. They are parts of one index. Keystone trains
it once, on the same sample as an index in one file. So the scores of all parts are comparable.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keystone.indexing.index import shard_files
from keystone.indexing.io.staged import stage
from keystone.indexing.types import Progress, silent
from keystone.indexing.vectors.faiss_index import (
    bind_search,
    fill_index,
    import_faiss,
    load_dense,
    train_index,
    write_dense,
)
from keystone.indexing.vectors.shards import Shards
from keystone.indexing.vectors.types import Vectors


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
        scores, rows = bind_search(part)(queries, min(depth, part.ntotal))
        best.add_result(scores, np.where(rows < 0, rows, rows + start))
        start += part.ntotal
    best.finalize()
    return best.D, best.I
