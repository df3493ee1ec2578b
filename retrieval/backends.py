"""The searches of an index, by the engine that holds it; nothing above this module knows which one that is."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from indexing.attached.rest_store import RestStore
from indexing.errors import UserError
from indexing.index import Index, of_one_index
from indexing.types import Store, Tick
from indexing.vectors.types import Vectors
from retrieval.types import Rankings, Statistics


class Sparse(Protocol):
    """BM25 with k1=0.9, b=0.4 and Anserini's English analyzer."""

    def search(
        self,
        query_ids: Sequence[str],
        queries: Sequence[str] | Sequence[Mapping[str, float]],
        depth: int,
        threads: int = 1,
        tick: Tick = ...,
    ) -> Rankings:
        """The top `depth` documents of each query, a text or weighted stems, by BM25; ties by document id."""

    def stems(self, text: str) -> list[str]:
        """The stems of a text in order, as they are indexed."""

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """In how many documents each stem occurs."""

    def document_frequencies(self, words: Sequence[str]) -> list[int]:
        """In how many documents the stem of each word occurs; 0 for a stop word."""


class Dense(Protocol):
    """Inner products of query and document vectors."""

    @property
    def dimension(self) -> int:
        """Entries of a vector."""

    def search(self, query_ids: Sequence[str], queries: Vectors, depth: int, threads: int = 1) -> Rankings:
        """The top `depth` documents of each query vector (float32[queries, dimension]); ties by document id."""


@of_one_index
def open_sparse(index: Index, store: Store, statistics: Statistics = "global") -> Sparse:
    """The BM25 search of an index over the documents of `store`, which is given those that it did not have.

    `statistics` says where a sharded index counts words.
    """
    if index.backend == "lucene":
        from retrieval.lucene.search import LuceneSearcher

        return LuceneSearcher(index.lucene)
    if index.backend == "pyserini":
        from indexing.attached.lucene_index import ROWS, lucene_folder
        from indexing.lucene.rows import LuceneRows
        from retrieval.lucene.attached import PrebuiltSearcher

        return PrebuiltSearcher(lucene_folder(index), LuceneRows(index.folder / ROWS), index.at["state"])
    if isinstance(store, RestStore):
        from retrieval.rest import RestSearcher

        return RestSearcher(store)
    if index.backend == "opensearch":
        from retrieval.opensearch import OpenSearchSparse

        return OpenSearchSparse(index, statistics)
    raise UserError(f"{index.folder}: found an index at {index.at}, which this version cannot search")


@of_one_index
def open_dense(index: Index, parameters: str = "") -> Dense:
    """The dense search of an index that holds vectors; `parameters` such as `nprobe=16` where it is not exact."""
    if index.backend == "lucene":
        from retrieval.faiss_search import FaissSearcher

        return FaissSearcher(index.dense_shards or index.dense, parameters)
    if index.backend == "opensearch":
        from retrieval.opensearch import OpenSearchDense

        return OpenSearchDense(index, parameters)
    raise UserError(f"{index.folder}: found an index at {index.at}, which this version cannot search")
