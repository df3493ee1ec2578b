"""Dense search in a candidate pool (Keystone-Docs RAG, section 2.2): the documents that BM25 finds for any query."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from indexing.vectors.faiss_index import new_index
from indexing.vectors.types import Vectors
from retrieval.faiss_search import search_dense
from retrieval.types import Rankings, offsets_of


def pool_of(rankings: Rankings) -> NDArray[np.int32]:
    """The documents of all queries' rankings, each once, ascending."""
    return np.unique(rankings.docs)


def search_pool(
    pool: NDArray[np.int32], vectors: Vectors, query_ids: Sequence[str], queries: Vectors, depth: int
) -> Rankings:
    """The top `depth` of the pool for each query vector (float32[queries, dimension]), exactly; ties by document id.

    `vectors` (float32[documents, dimension]) are beside `pool`, whose rows ascend.
    """
    if not len(pool):
        counts = np.zeros(len(query_ids), dtype=np.int64)
        return Rankings(tuple(query_ids), offsets_of(counts), pool, np.empty(0, np.float32))
    index = new_index(vectors.shape[1], "Flat")
    index.add(vectors)
    found = search_dense(index, query_ids, queries, depth)
    return replace(found, docs=pool[found.docs])
