"""Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009), in the two stages of the paper.

Stage 1 (Keystone-Docs RAG, section 2.3.1) fuses the systems of one query, stage 2 (2.3.2) the queries of one
narrative; both are the same sum over rankings of weight / (k + rank), ranks from 1, an absent document adding 0.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fusion.lists import Members, Ranked, lay_out, of_topics
from retrieval.types import Rankings, offsets_of

K = 60
DIGIT = 11
"""Bits of a radix digit."""


@njit(cache=True)  # type: ignore[untyped-decorator]
def _order(
    sums: NDArray[np.float64], found: NDArray[np.int32], order: NDArray[np.int32], spare: NDArray[np.int32]
) -> None:
    """Fill `order` with the positions of `sums` (not negative, one or more) by sum down, then `found` up.

    Such floats are in the order of their bits. Two radix passes over the 22 highest bits that differ leave next
    to nothing to the insertion sort, which makes the order exact.
    """
    bits = sums.view(np.int64)
    high = bits.max()
    span, shift = high - bits.min(), 0
    while span >> shift >= 1 << 2 * DIGIT:
        shift += 1
    order[:] = np.arange(len(sums))
    source, target = order, spare
    for digit in range(2):
        down = shift + digit * DIGIT
        starts = np.zeros((1 << DIGIT) + 1, dtype=np.int64)
        for j in range(len(sums)):
            starts[(((high - bits[j]) >> down) & ((1 << DIGIT) - 1)) + 1] += 1
        starts = np.cumsum(starts)
        for i in range(len(sums)):
            value = ((high - bits[source[i]]) >> down) & ((1 << DIGIT) - 1)
            target[starts[value]] = source[i]
            starts[value] += 1
        source, target = target, source
    for i in range(1, len(sums)):
        j, p = order[i], i
        while p > 0:
            before = order[p - 1]
            if sums[before] > sums[j] or (sums[before] == sums[j] and found[before] < found[j]):
                break
            order[p] = before
            p -= 1
        order[p] = j


@njit(cache=True)  # type: ignore[untyped-decorator]
def _fuse(
    docs: NDArray[np.int32],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    weights: NDArray[np.float64],
    groups: NDArray[np.int64],
    k: float,
    depth: int,
    out_docs: NDArray[np.int32],
    out_scores: NDArray[np.float64],
    out_counts: NDArray[np.int64],
) -> int:
    """Fuse the lists `groups[g]:groups[g + 1]` of each group g; returns how many rows were written.

    Ranks are visited from the top across all lists of a group, and lists come by weight, so that a document's
    terms are added in an order that does not depend on that of the lists. The sums of a group are in a hash table
    with room for four times its rows: it fits the cache, however large the numbers of the documents.
    """
    most = 0
    for g in range(len(groups) - 1):
        own = slice(groups[g], groups[g + 1])
        most = max(most, (ends[own] - starts[own]).sum())
    sums, found = np.empty(most), np.empty(most, np.int32)
    order, spare = np.empty(most, np.int32), np.empty(most, np.int32)
    table = np.empty(8 * most + 2, np.int32)
    written = 0
    for g in range(len(groups) - 1):
        rows = longest = 0
        for i in range(groups[g], groups[g + 1]):
            rows += ends[i] - starts[i]
            longest = max(longest, ends[i] - starts[i])
        bits = 1
        while 1 << bits < 4 * rows:
            bits += 1
        table[: 1 << bits] = -1
        count = 0
        for rank in range(longest):
            for i in range(groups[g], groups[g + 1]):
                if starts[i] + rank < ends[i]:
                    doc = docs[starts[i] + rank]
                    term = weights[i] / (k + rank + 1)
                    # Fibonacci hashing: the high bits of a product with 2 ** 64 over the golden ratio.
                    slot = np.int64((np.uint64(doc) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits))
                    while table[slot] >= 0 and found[table[slot]] != doc:
                        slot = (slot + 1) & ((1 << bits) - 1)
                    if table[slot] < 0:
                        table[slot] = count
                        found[count], sums[count] = doc, term
                        count += 1
                    else:
                        sums[table[slot]] += term
        if count:
            _order(sums[:count], found[:count], order[:count], spare[:count])
        out_counts[g] = min(count, depth)
        for j in range(out_counts[g]):
            out_docs[written], out_scores[written] = found[order[j]], sums[order[j]]
            written += 1
    return written


def fuse_groups(
    rankings: Sequence[Ranked],
    members: Members,
    ids: Sequence[str],
    k: float,
    depth: int,
    weights: Sequence[Sequence[float]] | None = None,
) -> Rankings:
    """Fuse, for each new id, its members (which of `rankings`, which query of it) by RRF; keep the top `depth`.

    `weights`, beside `members`, are 1 where not given; a list of weight 0 is left out, and `ValueError` is raised
    for one that is negative or not finite. Scores are float64; ties are broken by document id. The result is the
    same to the last bit for any order of the members.
    """
    lists = lay_out(rankings, members, weights)
    total = int(lists.lengths.sum())
    out_docs, out_scores = np.empty(total, np.int32), np.empty(total, np.float64)
    counts = np.zeros(len(members), dtype=np.int64)
    written = _fuse(
        lists.docs,
        lists.starts,
        lists.ends,
        lists.weights,
        lists.groups,
        float(k),
        depth,
        out_docs,
        out_scores,
        counts,
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
    weights: Sequence[float] | None = None,
) -> Rankings:
    """Stage 2: one ranking a topic from the rankings of its queries; `topic_of[i]` is the topic of query i.

    `weights[i]` is that of query i, 1 where no weights are given.
    """
    members, own = of_topics(topic_of, topics, weights)
    return fuse_groups([hybrid], members, topics, k, depth, own)
