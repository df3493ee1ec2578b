"""Dense search by OpenSearch. It gives the rankings of FAISS: same scores, ties by row.

OpenSearch's score is 1 + p for an inner product p of at least 0, else 1 / (1 - p). A float32 holds fewer digits of
that than of p alone. So Keystone multiplies queries by 2^23. Products of vectors on the grid
(`keystone.indexing.embedder`) are multiples of 2^-24, so they become whole halves, and 1 + p is exact. Keystone
rounds products below 0 to the grid again, which is exact down to about -0.35.

For documents by their passages, a script of the cluster gives the scores of `keystone.retrieval.faiss_search`. It adds
products of whole numbers, whose unit is 2^-24, so each inner product is exact. OpenSearch accepts no score below 0. So
the script numbers all float32 from -1 to 1 in their order, and the score is the float32 whose bits are that number.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.opensearch.index import PASSAGES, VECTOR, count_steps
from keystone.indexing.opensearch.search import open_cluster, read_dimension
from keystone.retrieval.backends import Dense
from keystone.retrieval.opensearch.pages import HitReading, search_pages
from keystone.retrieval.types import BEST_PASSAGE, PassageScore, Rankings

QUERY_SCALE = 2.0**23
"""The factor by which Keystone multiplies query vectors."""
GRID_STEPS = 2.0**24
"""The number of steps of the grid in a unit of an inner product."""
MOST_NEIGHBOURS = 10_000
"""The maximum number of neighbours that OpenSearch finds in a graph."""

_EF_SEARCH = re.compile(r"efSearch=([1-9]\d{0,5})")


class OpenSearchDense(Dense):
    """Inner products with the vectors of an index in a cluster: exact if the index is `Flat`, else by its graph.

    If the index has passages, `score` combines the inner products of a document's passages. `UserError` as from
    `open_cluster`, and for parameters other than `efSearch=N` of a graph.
    """

    def __init__(self, index: Index, parameters: str = "", score: PassageScore = BEST_PASSAGE) -> None:
        self._cluster = open_cluster(index)
        self._exact, self._score = index.faiss == "Flat", score if index.passages else None
        chosen = _EF_SEARCH.fullmatch(parameters)
        if parameters and (self._exact or not chosen):
            expected = "none: a Flat index is searched exactly" if self._exact else "efSearch=N alone for OpenSearch"
            raise UserError(f"retrieval.faiss: found {parameters!r}, expected {expected}")
        self._method = {"method_parameters": {"ef_search": int(chosen[1])}} if chosen else {}
        self._dimension = read_dimension(self._cluster)

    @property
    def dimension(self) -> int:
        """The number of entries in a vector."""
        return self._dimension

    def search(
        self,
        query_ids: Sequence[str],
        queries: Vectors,
        depth: int,
        threads: int = 1,  # noqa: ARG002
    ) -> Rankings:
        """Rank for query vectors (float32[queries, dimension]); ties by id. `UserError` if no answer comes."""
        if not self._exact and depth > MOST_NEIGHBOURS:
            raise UserError(
                f"retrieval.depth: found {depth}, expected at most {MOST_NEIGHBOURS}: OpenSearch finds no more by a "
                "graph; an index of kind Flat has no such bound"
            )
        if self._score:
            by_passages = [ask_for_passages(query, self._score) for query in queries]
            return search_pages(self._cluster, HitReading(read_passage_scores), query_ids, by_passages, depth)
        scaled = queries * np.float32(QUERY_SCALE)
        asked = [self._exactly(query) if self._exact else self._nearest(query, depth) for query in scaled]
        return search_pages(self._cluster, HitReading(inner_products), query_ids, asked, depth)

    def _exactly(self, query: Vectors) -> dict[str, Any]:
        parameters = {"field": VECTOR, "query_value": query, "space_type": "innerproduct"}
        script = {"source": "knn_score", "lang": "knn", "params": parameters}
        return {"script_score": {"query": {"match_all": {}}, "script": script}}

    def _nearest(self, query: Vectors, depth: int) -> dict[str, Any]:
        return {"knn": {VECTOR: {"vector": query, "k": depth, **self._method}}}


def inner_products(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Turn scores of scaled queries, float64[hits], into inner products float32[hits]. `ValueError` for one <= 0."""
    if np.any(scores <= 0):
        raise ValueError(f"found the score {scores.min():g} of a vector, expected more than 0")
    products = np.where(scores >= 1, scores - 1, 1 - 1 / scores) * (GRID_STEPS / QUERY_SCALE)
    return (np.rint(products) / GRID_STEPS).astype(np.float32)


ONE_BITS = int(np.float32(1).view(np.int32))
"""The bits of 1 as a float32; the number of float32 from above 0 to 1."""

SCRIPT = f"""
int multiply(byte[] bytes, int start, int[] query) {{
  int sum = 0;
  int at = start;
  for (int i = 0; i < query.length; i++) {{
    sum += query[i] * ((bytes[at] & 255) | (bytes[at + 1] << 8));
    at += 2;
  }}
  return sum;
}}
List given = params.query;
int[] query = new int[given.size()];
for (int i = 0; i < query.length; i++) {{ query[i] = (int) given.get(i); }}
BytesRef packed = doc['{PASSAGES}'].value;
int size = 2 * query.length;
int count = packed.length / size;
int[] top = new int[(int) Math.min((int) params.best, count)];
for (int place = 0; place < top.length; place++) {{ top[place] = Integer.MIN_VALUE; }}
int first = 0;
for (int passage = 0; passage < count; passage++) {{
  int value = multiply(packed.bytes, packed.offset + passage * size, query);
  if (passage == 0) {{ first = value; }}
  for (int place = 0; place < top.length; place++) {{
    if (value > top[place]) {{ int low = top[place]; top[place] = value; value = low; }}
  }}
}}
long total = 0;
for (int place = 0; place < top.length; place++) {{ total += top[place]; }}
double mean = total / 16777216.0 / top.length;
double weight = (double) params.first_weight;
float score = (float) ((1 - weight) * mean + weight * (first / 16777216.0));
int bits = Float.floatToIntBits((float) Math.abs(score));
return Float.intBitsToFloat(score < 0 ? {ONE_BITS} - bits : {ONE_BITS} + bits);
"""
"""The script in Painless: the `PassageScore` of the inner products of a document's passages, as a number in bits."""


def ask_for_passages(query: Vectors, score: PassageScore) -> dict[str, Any]:
    """Make OpenSearch's query for documents by their passages, for a vector float32[dimension] on the grid."""
    parameters = {"query": count_steps(query), "best": score.best, "first_weight": float(score.first_weight)}
    having = {"exists": {"field": PASSAGES}}
    return {"script_score": {"query": having, "script": {"source": SCRIPT, "params": parameters}}}


def read_passage_scores(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Turn the script's scores, float64[hits], into float32[hits]. `ValueError` for one that it cannot give."""
    bits = scores.astype(np.float32).view(np.int32) - ONE_BITS
    if np.any(scores < 0) or np.any(bits > ONE_BITS):
        raise ValueError(f"found the score {scores.min():g} or {scores.max():g} of passages, expected 0 to 2^127")
    found: NDArray[np.float32] = np.abs(bits).view(np.float32)
    return np.where(bits < 0, -found, found)
