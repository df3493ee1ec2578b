"""Search of impacts by OpenSearch, in fields of the type `sparse_vector` or `rank_features`.

OpenSearch keeps impacts exactly, and both types multiply each by its weight in the query, a whole number. So scores are
exact sums, and rankings those of local impacts. Only where a segment holds so many documents that the cluster searches
a `sparse_vector` approximately (1,000,000, unless its settings say otherwise) may it miss some of them; see "Efficient
Inverted Indexes for Approximate Retrieval over Learned Sparse Representations" (Bruch et al., 2024).
"""

from collections.abc import Mapping
from math import ceil, log2
from typing import Any

import numpy as np

from keystone.indexing.impacts import open_impact_encoder
from keystone.indexing.index import Index
from keystone.indexing.opensearch.cluster import Request, as_expected
from keystone.indexing.opensearch.index import BYTE_WEIGHT, IMPACTS, SPARSE_VECTOR
from keystone.indexing.opensearch.requests import ask
from keystone.retrieval.backends import Impacts
from keystone.retrieval.opensearch.pages import HitReading
from keystone.retrieval.opensearch.sparse import OpenSearchSparse

USUAL_SCALE = 4.0
"""The number by which weights up to 255 are divided, since the cluster accepts none above 64."""


def open_impacts(index: Index, name: str) -> Impacts:
    """Open the search of a set of impacts of an index in OpenSearch. `UserError` as from `open_cluster`."""
    return OpenSearchImpacts(index, name)


class OpenSearchImpacts(OpenSearchSparse):
    """Inner products of the impacts of queries and of documents in a cluster. The words of queries are tokens."""

    def __init__(self, index: Index, name: str) -> None:
        super().__init__(index)
        self._reading = HitReading(lambda scores: scores.astype(np.float32))
        self._impacts = f"{IMPACTS}.{name}"
        vocabulary = open_impact_encoder(index.impacts[name]).vocabulary
        self._entries = {token: str(entry) for entry, token in enumerate(vocabulary)}
        place = self._cluster.place
        mapping = ask(self._cluster.nodes, Request("GET", f"{place.path}/_mapping/field/{self._impacts}")).checked()
        with as_expected(place):
            (found,) = mapping.values()
            self._is_vector = found["mappings"][self._impacts]["mapping"][name]["type"] == SPARSE_VECTOR

    def _ask_stems(self, weights: Mapping[str, float], depth: int) -> dict[str, Any]:
        if not self._is_vector or not weights:
            return super()._ask_stems(weights, depth)
        scale = max(USUAL_SCALE, 2.0 ** ceil(log2(max(weights.values()) / BYTE_WEIGHT)))
        asked = {
            "query_tokens": {self._entries[token]: weight / scale for token, weight in weights.items()},
            "boost": scale,
            "method_parameters": {"k": depth, "top_n": len(weights)},  # of approximate search alone
        }
        return {"bool": {"should": [{"neural_sparse": {self._impacts: asked}}]}}

    def _ask_stem(self, stem: str, weight: float) -> dict[str, Any]:
        return {"rank_feature": {"field": f"{self._impacts}.{self._entries[stem]}", "linear": {}, "boost": weight}}
