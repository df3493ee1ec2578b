"""Systems of the kind `dense`: inner products of embeddings, of a query or of a passage that answers it (HyDE).

A search imports what it needs, so that a configuration is read without the packages for numbers.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from keystone.indexing.embedder import Effort, Vectors
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.settings import leave_out
from keystone.indexing.types import Embedding, Tick
from keystone.retrieval.backends import open_dense
from keystone.retrieval.system import OpenIndex, Rows, System
from keystone.retrieval.types import PassageScore, Query, Rankings


class DenseSystem(System):
    """Dense search, by a set of vectors of the index. If it reads passages, it searches for their embeddings (HyDE)."""

    lowest: ClassVar[float] = -1.0
    lane: ClassVar[str] = "cpu"

    kind: Literal["dense"] = "dense"
    """The kind of the system."""
    vectors: str | None = None
    """The name of the set of vectors; null: those of `--embedding`."""
    within: str | None = None
    """Another system: the documents that it finds for any query are ranked, exactly."""
    faiss: str = ""
    """As `retrieval.faiss`."""
    best_passages: int = Field(default=5, ge=1, le=1000)
    """As `retrieval.best_passages`."""
    first_passage_weight: float = Field(default=0.5, ge=0, le=1)
    """As `retrieval.first_passage_weight`."""

    query_share: float = Field(default=0.0, ge=0, lt=1)
    """With `reads: passage`, the share of the query's own vector in a mixture with the passage's."""

    @model_validator(mode="after")
    def _check_share(self) -> Self:
        if self.query_share and self.reads != "passage":
            raise ValueError(f"query_share: found {self.query_share:g} with reads: query, expected reads: passage")
        return self

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return leave_out(self, handler, ("query_share",))

    def fits(self, index: Index) -> bool:
        """Tell whether the index has embeddings. `UserError` for a set of vectors that it lacks."""
        return index.with_vectors(self.vectors).embedding is not None

    def needs_candidates(self, index: Index) -> bool:
        """Tell whether the index leaves embedding to runs, which embed no more than candidates."""
        return index.with_vectors(self.vectors).pooled

    def describe(self) -> dict[str, Any]:
        """Name the set of vectors, whose embedding model is the method."""
        return {} if self.vectors is None else {"vectors": self.vectors}

    def open_parts(self, opened: OpenIndex) -> None:
        """Open the vectors, if the index has them."""
        index = opened.index.with_vectors(self.vectors)
        if index.faiss:
            open_dense(index, self.faiss, self._score)

    def search(self, opened: OpenIndex, queries: Sequence[Query], within: Rows | None) -> Rankings:
        """Rank documents for each query by the inner product of embeddings.

        If the index has no embeddings, or if the model's vectors have changed their length, the function raises
        `UserError`. It also raises `UserError` for search parameters that the index does not support.
        """
        index = opened.index.with_vectors(self.vectors)
        if index.embedding is None:
            raise UserError(
                f"{index.folder}: has no embeddings for dense search: expected retrieval.systems [bm25] and no "
                "queries.passages hyde, or an index that is built without --no-dense"
            )
        if within is not None:
            return self._search_candidates(replace(opened, index=index), queries, within)
        with opened.progress("Dense search", len(queries)) as tick:
            dense = open_dense(index, self.faiss, self._score)
            vectors = self._embed(index.embedding, queries, opened.threads, tick)
            if vectors.shape[1] != dense.dimension:
                raise UserError(
                    f"{index.folder}: found vectors of {vectors.shape[1]} numbers from {index.embedding.label}, "
                    f"expected {dense.dimension}: the model has changed: build the index again"
                )
            return dense.search([query.id for query in queries], vectors, self.depth, opened.threads)

    @property
    def _score(self) -> PassageScore:
        return PassageScore(self.best_passages, self.first_passage_weight)

    def _embed(self, embedding: Embedding, queries: Sequence[Query], threads: int, tick: Tick) -> Vectors:
        """Embed what the system reads of each query: float32[queries, dimension]."""
        from keystone.indexing.embedder import round_to_grid
        from keystone.indexing.vectors.embed import embed_queries

        own = [query.dense_text for query in queries]
        if self.reads == "query":
            return embed_queries(embedding, own, threads, tick)
        passages = embed_queries(embedding, [query.passage for query in queries], threads, tick)
        if not self.query_share:
            return passages
        asked = embed_queries(embedding, own, threads)
        mixed = self.query_share * asked.astype("float64") + (1 - self.query_share) * passages.astype("float64")
        return round_to_grid(mixed)

    def _search_candidates(self, opened: OpenIndex, queries: Sequence[Query], rows: Rows) -> Rankings:
        """Rank the documents of `rows` exactly. In an index of passages, their segments are embedded."""
        from keystone.indexing.vectors.faiss_index import import_faiss
        from keystone.indexing.vectors.of_documents import document_vectors
        from keystone.indexing.vectors.of_segments import segment_vectors
        from keystone.indexing.vectors.passages import hold_passages
        from keystone.retrieval.faiss_search import rank_by_passages, search_pool

        if self.faiss:
            raise UserError(
                f"retrieval.faiss: found {self.faiss!r}, expected none: a candidate pool is searched exactly"
            )
        index, threads, ids = opened.index, opened.threads, [query.id for query in queries]
        segments: dict[int, Vectors] = {}
        if index.passages:
            segments = segment_vectors(index, opened.store, rows.tolist(), threads, opened.progress)
        else:
            effort = Effort(threads, opened.progress)
            vectors = document_vectors(index, opened.store, rows.tolist(), opened.texts_of, effort)
        assert index.embedding is not None  # `search` has checked
        with opened.progress("Dense search", len(queries)) as tick:
            asked = self._embed(index.embedding, queries, threads, tick)
            import_faiss().omp_set_num_threads(threads)
            if not index.passages:
                return search_pool(rows, vectors, ids, asked, self.depth)
            passages = hold_passages((segments[row] for row in rows.tolist()), asked.shape[1])
            found = rank_by_passages(passages, ids, asked, self.depth, self._score)
            return replace(found, docs=rows[found.docs])
