"""Documents by their passages in OpenSearch: a script of the cluster gives the scores of `retrieval.passages`.

The script adds products of whole numbers, whose unit is 2^-24, so each inner product is exact. OpenSearch accepts no
score below 0. So the script numbers all float32 from -1 to 1 in their order, and the score is the float32 whose bits
are that number.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.opensearch.passages import PASSAGES, count_steps
from keystone.indexing.vectors.types import Vectors
from keystone.retrieval.types import PassageScore

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
    """Make the query, in OpenSearch's language, for documents by the scores of their passages.

    `query` float32[dimension] is on the grid.
    """
    parameters = {"query": count_steps(query), "best": score.best, "first_weight": float(score.first_weight)}
    having = {"exists": {"field": PASSAGES}}
    return {"script_score": {"query": having, "script": {"source": SCRIPT, "params": parameters}}}


def read_passage_scores(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Turn the script's scores, float64[hits], into the scores of documents float32[hits].

    `ValueError` for a score that the script cannot give.
    """
    bits = scores.astype(np.float32).view(np.int32) - ONE_BITS
    if np.any(scores < 0) or np.any(bits > ONE_BITS):
        raise ValueError(f"found the score {scores.min():g} or {scores.max():g} of passages, expected 0 to 2^127")
    found: NDArray[np.float32] = np.abs(bits).view(np.float32)
    return np.where(bits < 0, -found, found)
