"""The dense index in several files, for vectors that do not fit in memory at once.

`dense-0000.faiss`, `dense-0001.faiss`, ... hold contiguous ranges of rows. They are one index cut in parts: what is
trained is trained once, on the sample that a single file is trained on, so scores of all parts compare.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from indexing.index import shard_files
from indexing.io.staged import stage
from indexing.types import Progress, silent
from indexing.vectors.faiss_index import faiss_module, fill, load_dense, search_of, trained, write_dense
from indexing.vectors.shards import Shards
from indexing.vectors.types import Vectors


def build_dense_shards(shards: Shards, factory: str, size: int, folder: Path, progress: Progress = silent) -> int:
    """Make an index of `size` rows for each file, one file after the other in memory; returns their number.

    Files that an earlier try has made are left as they are. `UserError` as from `build_dense`.
    """
    faiss = faiss_module()
    files = shard_files(folder, -(-shards.documents // size))
    empty = folder / "trained.faiss"
    starts = range(0, shards.documents, size)

    def make(path: Path, start: int) -> None:
        index = faiss.read_index(str(empty))
        fill(index, shards.between(start, start + size))
        write_dense(index, path)

    with progress("Building the FAISS index", shards.documents) as tick:
        stage(folder, empty.name, lambda path: write_dense(trained(shards, factory), path))
        for start, file in zip(starts, files, strict=True):
            stage(folder, file.name, partial(make, start=start))
            tick(min(size, shards.documents - start))
    return len(files)


def load_dense_shards(files: Sequence[Path], parameters: str = "") -> list[Any]:
    """The parts of an index, mapped: only searched pages take memory, and the system can take it back."""
    return [load_dense(file, parameters, mapped=True) for file in files]


def search_shards(parts: Sequence[Any], queries: Vectors, depth: int) -> tuple[Any, Any]:
    """The `depth` best of all parts for each query, as one index gives them: float32 and int64[queries, depth].

    One part is searched after the other, on GPUs where FAISS has some, and only one part lies there at a time. A row
    can be missing only if its score is not above that of the last row given, or if an inexact part does not find it.
    """
    best = faiss_module().ResultHeap(len(queries), depth, keep_max=True)
    start = 0
    for part in parts:
        scores, rows = search_of(part)(queries, min(depth, part.ntotal))
        best.add_result(scores, np.where(rows < 0, rows, rows + start))
        start += part.ntotal
    best.finalize()
    return best.D, best.I
