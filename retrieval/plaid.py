"""Systems of the kind `plaid`: late interaction over all documents, by a PLAID index of tokens' vectors.

The score of a document is MaxSim of its compressed vectors, divided by the number of the query's vectors. In an index
of passages it is that of the document's best passage. A system of the kind `late` ranks what this one finds exactly.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from keystone.indexing.index import Index
from keystone.retrieval.late import encode_queries
from keystone.retrieval.system import OpenIndex, Rows, System
from keystone.retrieval.types import Query, Rankings, ranked

if TYPE_CHECKING:
    from keystone.indexing.plaid import Hits


class PlaidSystem(System):
    """Late interaction over all documents. If it reads passages, it searches for the passage in place of the query."""

    lowest: ClassVar[float] = -1.0
    lane: ClassVar[str] = "cpu"

    kind: Literal["plaid"] = "plaid"
    """The kind of the system."""
    plaid: str = Field(min_length=1)
    """The name of the PLAID index."""

    def fits(self, index: Index) -> bool:
        """Tell whether the index holds the PLAID index. `UserError` if it lacks it."""
        return bool(index.plaid_of(self.plaid))

    def open_parts(self, opened: OpenIndex) -> None:
        """Open the PLAID index."""
        from keystone.indexing.plaid import open_plaid

        open_plaid(opened.index, self.plaid)

    def describe(self) -> dict[str, Any]:
        """Describe the method, by the name of the PLAID index."""
        return {"method": "late interaction (PLAID)", "plaid": self.plaid}

    def search(self, opened: OpenIndex, queries: Sequence[Query], within: Rows | None) -> Rankings:
        """Rank the documents that PLAID finds for each query. `UserError` as from `open_plaid`."""
        from keystone.indexing.plaid import LEAST_SCORED, open_plaid, open_plaid_encoder, search_plaid
        from keystone.indexing.vectors.passages import load_offsets

        assert within is None  # no setting gives candidates to this kind
        index = opened.index
        asked = encode_queries(open_plaid_encoder(index.plaid[self.plaid]), queries, self.reads)
        offsets = load_offsets(index) if index.offsets.exists() else None
        depth = self.depth
        if offsets is not None:  # a document's passages may be many
            depth = max(LEAST_SCORED, depth * -(-int(offsets[-1]) // (len(offsets) - 1)))
        with opened.progress("PLAID search", len(queries)) as tick:
            found = search_plaid(open_plaid(index, self.plaid), asked, depth, opened.threads, tick)
        hits = [_rank(own, len(query), offsets) for own, query in zip(found, asked, strict=True)]
        return ranked([query.id for query in queries], [rows for rows, _ in hits], [own for _, own in hits], self.depth)


def _rank(hits: "Hits", length: int, offsets: NDArray[np.int64] | None) -> tuple[Rows, NDArray[np.float32]]:
    """List the rows of the documents of texts, and the best score of each by one of `length` vectors of the query."""
    texts = np.array([text for text, _ in hits], np.int64)
    scores = np.array([score / length for _, score in hits], np.float32)
    owners = texts if offsets is None else np.searchsorted(offsets, texts, side="right") - 1
    rows, firsts = np.unique(owners, return_index=True)  # the first hit of a document is its best
    return rows.astype(np.int32), scores[firsts]
