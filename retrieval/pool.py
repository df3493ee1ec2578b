"""Dense search in a candidate pool (Keystone-Docs RAG, section 2.2): documents that a system finds for any query."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.vectors.faiss_index import make_faiss_index
from keystone.indexing.vectors.types import Vectors
from keystone.retrieval.faiss_search import search_dense
from keystone.retrieval.types import Rankings, offsets_of


def search_pool(
    pool: NDArray[np.int32], vectors: Vectors, query_ids: Sequence[str], queries: Vectors, depth: int
) -> Rankings:
    """Rank the top `depth` documents of the pool for each query vector, exactly; ties by document id.

    `pool` int32[documents] holds ascending rows, `vectors` float32[documents, dimension] the embeddings beside them,
    and `queries` float32[queries, dimension] the query vectors.
    """
    if not len(pool):
        counts = np.zeros(len(query_ids), dtype=np.int64)
        return Rankings(tuple(query_ids), offsets_of(counts), pool, np.empty(0, np.float32))
    index = make_faiss_index(vectors.shape[1], "Flat")
    index.add(vectors)
    found = search_dense(index, query_ids, queries, depth)
    return replace(found, docs=pool[found.docs])
