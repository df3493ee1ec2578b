"""Systems of the kind `bm25`: BM25 for a query, or for the question and a passage that answers it (query2doc)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from keystone.indexing.settings.none_named import NoneNamed
from keystone.indexing.types import Store
from keystone.retrieval.backends import Sparse, open_sparse
from keystone.retrieval.feedback import FEEDBACK_DOCUMENTS, METHODS, serves
from keystone.retrieval.system import OpenIndex, Rows, System
from keystone.retrieval.types import K1, B, Bm25, Query, Rankings, Statistics

QUESTION_REPEATS = 5
"""How often `query2doc` repeats the question before the passage (Query2Doc, section 3)."""


class Bm25System(System):
    """BM25. If it reads passages, it searches for the question five times and the passage once (query2doc)."""

    lowest: ClassVar[float] = 0.0
    lane: ClassVar[str] = "java"

    kind: Literal["bm25"] = "bm25"
    """The kind of the system."""
    k1: float = Field(default=K1, ge=0, le=100)
    """The k1 of BM25. If it is not set, `retrieval.k1` gives it, and so on for the keys below."""
    b: float = Field(default=B, ge=0, le=1)
    """The b of BM25."""
    feedback: Annotated[Literal["rm3", "rocchio"] | None, NoneNamed("none", "rm3", "rocchio")] = None
    """The pseudo-relevance feedback."""
    statistics: Statistics = "global"
    """Where BM25 counts words if an OpenSearch index has several shards."""

    @property
    def parameters(self) -> Bm25:
        """The parameters with which an engine opens the search."""
        return Bm25(self.k1, self.b, self.statistics)

    def describe(self) -> dict[str, Any]:
        """Describe the method: BM25 with its parameters."""
        return {"method": "BM25", "k1": self.k1, "b": self.b}

    def search(self, opened: OpenIndex, queries: Sequence[Query], within: Rows | None) -> Rankings:
        """Rank documents for each query by BM25, after a first search for feedback if the settings name a method.

        `UserError` from the engine, and for feedback that it does not support.
        """
        assert within is None  # no setting gives candidates to this kind
        searcher, progress = open_sparse(opened.index, opened.store, self.parameters), opened.progress
        ids, texts = [query.id for query in queries], [self._read(query) for query in queries]
        expanded: Sequence[str] | Sequence[Mapping[str, float]] = texts
        if self.feedback:
            with progress(f"BM25 search for {self.feedback}", len(queries)) as tick:
                first = searcher.search(ids, texts, FEEDBACK_DOCUMENTS, opened.threads, tick)
            expanded = _expand_queries(opened.store, searcher, texts, first, self.feedback)
        with progress("BM25 search", len(queries)) as tick:
            found = searcher.search(ids, expanded, self.depth, opened.threads, tick)
        from keystone.indexing.lucene.java import detach_thread

        detach_thread()
        return found

    def _read(self, query: Query) -> str:
        if self.reads == "query":
            return query.sparse_text
        return " ".join([query.question] * QUESTION_REPEATS + [query.passage])


def _expand_queries(
    store: Store, searcher: Sparse, texts: Sequence[str], first: Rankings, feedback: str
) -> list[dict[str, float]]:
    """Expand each query text into weighted stems, by the documents that it found first."""
    rows = np.unique(first.docs)
    counts = [Counter(searcher.stems(document.contents)) for document in store.get(rows)]
    stems = sorted(set().union(*counts))
    frequency = dict(zip(stems, searcher.stem_frequencies(stems), strict=True))
    serving = {stem for stem in stems if serves(stem, frequency[stem], len(store))}
    vectors = {
        row: {stem: count for stem, count in own.items() if stem in serving}
        for row, own in zip(rows.tolist(), counts, strict=True)
    }
    return [
        METHODS[feedback](
            Counter(searcher.stems(text)), [vectors[row] for row in first.of(i).tolist()], first.scores_of(i).tolist()
        )
        for i, text in enumerate(texts)
    ]
