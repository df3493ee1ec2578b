"""Systems of the kind `impact`: learned sparse retrieval by inner products of impacts, whole numbers."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from keystone.indexing.index import Index
from keystone.retrieval.backends import open_impacts
from keystone.retrieval.system import OpenIndex, Rows, System
from keystone.retrieval.types import Query, Rankings


class ImpactSystem(System):
    """Learned sparse retrieval. If it reads passages, it searches for the passage in place of the query."""

    lowest: ClassVar[float] = 0.0
    lane: ClassVar[str] = "cpu"

    kind: Literal["impact"] = "impact"
    """The kind of the system."""
    impacts: str = Field(min_length=1)
    """The name of the set of impacts."""

    def fits(self, index: Index) -> bool:
        """Tell whether the index holds impacts. `UserError` for a set that it lacks."""
        return bool(index.impacts_of(self.impacts))

    def open_parts(self, opened: OpenIndex) -> None:
        """Open the impacts."""
        open_impacts(opened.index, self.impacts)

    def describe(self) -> dict[str, Any]:
        """Describe the method: learned sparse retrieval, by the name of the set."""
        return {"method": "impact", "impacts": self.impacts}

    def search(self, opened: OpenIndex, queries: Sequence[Query], within: Rows | None) -> Rankings:
        """Rank documents for each query by the inner product of impacts. `UserError` as from `open_impacts`."""
        from keystone.indexing.encoders.sparse import quantise
        from keystone.indexing.impacts import open_impact_encoder

        assert within is None  # no setting gives candidates to this kind
        index = opened.index
        searcher = open_impacts(index, self.impacts)
        encoder = open_impact_encoder(index.impacts[self.impacts])
        texts = [query.dense_text if self.reads == "query" else query.passage for query in queries]
        weighted = encoder.encode_queries(texts, opened.threads)
        vocabulary = encoder.vocabulary
        asked = [
            {vocabulary[entry]: float(impact) for entry, impact in zip(entries, quantise(own), strict=True) if impact}
            for entries, own in weighted
        ]
        with opened.progress("Impact search", len(queries)) as tick:
            return searcher.search([query.id for query in queries], asked, self.depth, opened.threads, tick)
