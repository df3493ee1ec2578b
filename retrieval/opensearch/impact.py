"""Search of impacts by OpenSearch, in fields of the type `rank_features`. It gives the rankings of local impacts.

OpenSearch keeps impacts exactly, and a linear function multiplies each by its weight in the query, a whole number.
So scores are exact sums.
"""

from typing import Any

import numpy as np

from keystone.indexing.impacts import open_impact_encoder
from keystone.indexing.index import Index
from keystone.indexing.opensearch.index import IMPACTS
from keystone.retrieval.backends import Impacts
from keystone.retrieval.opensearch.pages import HitReading
from keystone.retrieval.opensearch.sparse import OpenSearchSparse


def open_impacts(index: Index, name: str) -> Impacts:
    """Open the search of a set of impacts of an index in OpenSearch. `UserError` as from `open_cluster`."""
    return OpenSearchImpacts(index, name)


class OpenSearchImpacts(OpenSearchSparse):
    """Inner products of the impacts of queries and of documents in a cluster. The words of queries are tokens."""

    def __init__(self, index: Index, name: str) -> None:
        super().__init__(index)
        self._reading = HitReading(lambda scores: scores.astype(np.float32))
        vocabulary = open_impact_encoder(index.impacts[name]).vocabulary
        self._fields = {token: f"{IMPACTS}.{name}.{entry}" for entry, token in enumerate(vocabulary)}

    def _ask_stem(self, stem: str, weight: float) -> dict[str, Any]:
        return {"rank_feature": {"field": self._fields[stem], "linear": {}, "boost": weight}}
