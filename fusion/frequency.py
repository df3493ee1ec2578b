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

    A score is the count plus the share of the RRF order below it, so that scores alone give the order.
    """
    cut = hybrid.top(top)
    by_rrf = fuse_queries(cut, topic_of, topics, k, depth=len(cut.docs))
    docs, scores = [], []
    for number, topic in enumerate(topics):
        found = by_rrf.of(number)
        queries = [i for i, own in enumerate(topic_of) if own == topic]
        appearances = np.concatenate([cut.of(i) for i in queries]) if queries else found
        values, counts = np.unique(appearances, return_counts=True)
        share = 1 - np.arange(1, len(found) + 1) / (len(found) + 1)
        docs.append(found)
        scores.append(counts[np.searchsorted(values, found)] + share)
    return ranked(topics, docs, scores, depth)
