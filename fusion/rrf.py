"""Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009), in the two stages of the paper.

Stage 1 (Keystone-Docs RAG, section 2.3.1) fuses the systems of one query, stage 2 (2.3.2) the queries of one
narrative; both are the same sum over rankings of 1 / (k + rank), ranks from 1, an absent document adding 0.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from retrieval.types import Rankings, offsets_of

K = 60


@njit(cache=True)  # type: ignore[untyped-decorator]
def _fuse(
    docs: NDArray[np.int32],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    groups: NDArray[np.int64],
    k: float,
    depth: int,
    size: int,
    out_docs: NDArray[np.int32],
    out_scores: NDArray[np.float64],
    out_counts: NDArray[np.int64],
) -> int:
    """Fuse lists `groups[g]:groups[g + 1]` for each g; `size` is above every document number.

    Ranks are visited from the top across all lists of a group, so a document's terms are added in the order of
    their ranks and the sum does not depend on the order of the lists.
    """
    sums = np.zeros(size)
    seen = np.empty(size, dtype=np.int32)
    written = 0
    for g in range(len(groups) - 1):
        count = 0
        longest = 0
        for i in range(groups[g], groups[g + 1]):
            longest = max(longest, ends[i] - starts[i])
        for rank in range(longest):
            term = 1.0 / (k + rank + 1)
            for i in range(groups[g], groups[g + 1]):
                if starts[i] + rank < ends[i]:
                    doc = docs[starts[i] + rank]
                    if sums[doc] == 0.0:
                        seen[count] = doc
                        count += 1
                    sums[doc] += term
        found = np.sort(seen[:count])
        order = np.argsort(-sums[found], kind="mergesort")
        kept = min(count, depth)
        for j in range(kept):
            doc = found[order[j]]
            out_docs[written] = doc
            out_scores[written] = sums[doc]
            written += 1
        for j in range(count):
            sums[found[j]] = 0.0
        out_counts[g] = kept
    return written


def fuse_groups(
    rankings: Sequence[Rankings], members: Sequence[Sequence[tuple[int, int]]], ids: Sequence[str], k: float, depth: int
) -> Rankings:
    """Fuse, for each new id, its members (which of `rankings`, which query of it) by RRF; keep the top `depth`.

    Scores are float64; ties are broken by document id. The result does not depend on the order of the members.
    """
    shift = np.cumsum([0] + [len(r.docs) for r in rankings])
    flat = [(shift[r] + rankings[r].offsets[q], shift[r] + rankings[r].offsets[q + 1]) for m in members for r, q in m]
    bounds = np.array(flat, dtype=np.int64).reshape(-1, 2)
    docs = np.concatenate([r.docs for r in rankings]) if rankings else np.empty(0, np.int32)
    total = int((bounds[:, 1] - bounds[:, 0]).sum())
    out_docs, out_scores = np.empty(total, np.int32), np.empty(total, np.float64)
    counts = np.zeros(len(members), dtype=np.int64)
    size = int(docs.max()) + 1 if len(docs) else 0
    groups = offsets_of([len(m) for m in members])
    written = _fuse(
        docs, bounds[:, 0].copy(), bounds[:, 1].copy(), groups, k, depth, size, out_docs, out_scores, counts
    )
    return Rankings(tuple(ids), offsets_of(counts), out_docs[:written], out_scores[:written])


def fuse_systems(systems: Sequence[Rankings], k: float = K, depth: int = 1000) -> Rankings:
    """Stage 1: one hybrid ranking a query from the rankings that several systems gave it."""
    ids = systems[0].query_ids
    members = [[(system, query) for system in range(len(systems))] for query in range(len(ids))]
    return fuse_groups(systems, members, ids, k, depth)


def fuse_queries(
    hybrid: Rankings,
    topic_of: Sequence[str],
    topics: Sequence[str],
    k: float = K,
    depth: int = 100,
    weights: Sequence[int] | None = None,
) -> Rankings:
    """Stage 2: one ranking a topic from the rankings of its queries; `topic_of[i]` is the topic of query i.

    Query i counts `weights[i]` times, once where no weights are given.
    """
    own: dict[str, list[tuple[int, int]]] = {topic: [] for topic in topics}
    for query, topic in enumerate(topic_of):
        own[topic] += [(0, query)] * (weights[query] if weights is not None else 1)
    return fuse_groups([hybrid], list(own.values()), topics, k, depth)
