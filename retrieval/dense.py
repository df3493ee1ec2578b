"""Exact dense search: the inner product of query and document vectors, by FAISS."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from indexing.embed import Vectors
from retrieval.types import Rankings, ranked

SPARE = 8


def search_dense(index: Any, query_ids: Sequence[str], queries: Vectors, depth: int) -> Rankings:
    """The top `depth` documents of each query vector (float32[queries, dimension]); ties by document id.

    FAISS keeps any of the documents that tie at its last place, so more are fetched until no tie is cut.
    """
    wanted = min(depth + SPARE, index.ntotal)
    while True:
        scores, docs = index.search(queries, wanted)
        if wanted == index.ntotal or bool(np.all(scores[:, -1] < scores[:, depth - 1])):
            return ranked(query_ids, list(docs), list(scores), depth)
        wanted = min(2 * wanted, index.ntotal)
