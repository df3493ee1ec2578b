"""Dense search: the inner product of query and document vectors, by FAISS."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from indexing.dense import faiss_module, load_dense, search_of
from indexing.embed import Vectors
from retrieval.types import Rankings, ranked

SPARE = 8


class FaissSearcher:
    """A FAISS index made by `build_dense`, with search parameters such as `nprobe=16`."""

    def __init__(self, path: Path, parameters: str = "") -> None:
        self._index = load_dense(path, parameters)

    @property
    def dimension(self) -> int:
        """Entries of a vector."""
        return int(self._index.d)

    def search(self, query_ids: Sequence[str], queries: Vectors, depth: int, threads: int = 1) -> Rankings:
        """The top `depth` documents of each query vector (float32[queries, dimension]); ties by document id."""
        faiss_module().omp_set_num_threads(threads)
        return search_dense(self._index, query_ids, queries, depth)


def search_dense(index: Any, query_ids: Sequence[str], queries: Vectors, depth: int) -> Rankings:
    """The top `depth` documents of each query vector (float32[queries, dimension]); ties by document id.

    FAISS keeps any of the documents that tie at its last place, so more are fetched until no tie is cut. An index
    that is not exact may find fewer documents; then its rankings are shorter.
    """
    search = search_of(index)
    wanted = min(depth + SPARE, index.ntotal)
    while True:
        scores, docs = search(queries, wanted)
        whole = (docs[:, -1] < 0) | (scores[:, -1] < scores[:, min(depth, wanted) - 1])
        if wanted == index.ntotal or bool(np.all(whole)):
            break
        wanted = min(2 * wanted, index.ntotal)
    counts = np.count_nonzero(docs >= 0, axis=1).tolist()
    return ranked(
        query_ids,
        [row[:count] for row, count in zip(docs, counts, strict=True)],
        [row[:count] for row, count in zip(scores, counts, strict=True)],
        depth,
    )
