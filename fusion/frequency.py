"""The frequency strategy (Keystone-Docs RAG, section 2.5): in how many queries' top documents one appears."""

from collections.abc import Sequence

import numpy as np

from fusion.rrf import K, fuse_queries
from retrieval.types import Rankings, ranked

TOP = 20


def fuse_by_frequency(
    hybrid: Rankings, topic_of: Sequence[str], topics: Sequence[str], k: float = K, depth: int = 100, top: int = TOP
) -> Rankings:
    """One ranking a topic by the number of its queries that rank a document in their top 20; ties by RRF, then id.

    A document below every top 20 counts 0 and follows in the order of RRF. A score is the count plus the share
    of the RRF order below a document, so that scores alone give the order.
    """
    by_rrf = fuse_queries(hybrid, topic_of, topics, k, depth=len(hybrid.docs))
    cut = hybrid.top(top)
    docs, scores = [], []
    for number, topic in enumerate(topics):
        found = by_rrf.of(number)
        queries = [i for i, own in enumerate(topic_of) if own == topic]
        counts = np.zeros(int(found.max(initial=0)) + 1)
        for i in queries:
            counts[cut.of(i)] += 1
        share = 1 - np.arange(1, len(found) + 1) / (len(found) + 1)
        docs.append(found)
        scores.append(counts[found] + share)
    return ranked(topics, docs, scores, depth)
