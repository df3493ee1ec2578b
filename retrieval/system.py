"""What a system is: a way to rank documents for a query, with its settings and its search of a batch of queries.

Each kind of system has a file beside this one, and a row in the table `keystone.retrieval.search.KINDS`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from keystone.indexing.index import Index
from keystone.indexing.settings import StrictSettings
from keystone.indexing.types import Progress, Store, silent
from keystone.indexing.vectors.of_documents import TextsOf, join_title_and_text
from keystone.retrieval.types import Query, Rankings

Rows = NDArray[np.int32]
"""Rows of a document store, ascending: int32[documents]."""


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """An index that systems search. `store` is the one of `open_store(index)`."""

    index: Index
    store: Store
    threads: int = 1
    """The number of threads that search and embed."""
    progress: Progress = silent
    texts_of: TextsOf = join_title_and_text
    """Returns the texts that are embedded for candidates of an index without vectors."""


class System(StrictSettings):
    """A system that ranks documents for each query; `retrieval` gives what it leaves out."""

    lowest: ClassVar[float]
    """The lowest possible score. With NaN, only the ranks of the system can be fused."""
    lane: ClassVar[str]
    """Systems of one lane search in turn, and lanes search at the same time."""

    kind: str
    """The kind of the system."""
    reads: Literal["query", "passage"] = "query"
    """What the system searches for: the query, or the passage that the model writes for it."""
    weight: float | None = Field(default=None, gt=0, le=1000)
    """The weight in the first stage of fusion; null: `fusion.dense_weight` and `queries.passage_weight` give it."""
    depth: int = Field(default=1000, ge=1, le=100_000)
    """How many documents the system returns for a query."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Raise `TypeError` for a kind that lacks its name, its lowest score, its lane or its search."""
        named = isinstance(cls.model_fields["kind"].default, str)
        if not named or not hasattr(cls, "lowest") or not hasattr(cls, "lane") or cls.search is System.search:
            expected = "lowest, lane, search, and kind with one value, as in kind: Literal['mine'] = 'mine'"
            raise TypeError(f"{cls.__qualname__}: expected {expected}")

    @property
    def base(self) -> str | None:
        """The name of the system whose documents alone this one ranks, its `within`; None if it ranks all documents."""
        within: str | None = getattr(self, "within", None)
        return within

    def fits(self, _index: Index) -> bool:
        """Tell whether the index holds what the system searches. `UserError` for a name that the index lacks."""
        return True

    def needs_candidates(self, _index: Index) -> bool:
        """Tell whether the system can only rank documents of an index that another system has found."""
        return False

    def describe(self) -> dict[str, Any]:
        """Describe the method for `ir_metadata`; without a `method`, it is the embedding model of the vectors."""
        return {"method": self.kind}

    def identify(self) -> str | None:
        """Identify what the settings name outside of the index, for keys of kept rankings; None if there is nothing."""
        return None

    def open_parts(self, opened: OpenIndex) -> None:
        """Open the parts of an index that the search uses, if the index keeps them open. `UserError` as `search`."""

    @abstractmethod
    def search(self, opened: OpenIndex, queries: Sequence[Query], within: Rows | None) -> Rankings:
        """Rank the top `depth` documents of each query, each once, in the order of the queries; ties by document id.

        If `within` is not None, only these documents are ranked. If the system reads passages, each query has one.
        """
