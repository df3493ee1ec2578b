"""Two-stage RRF beside ranx, Pyserini and plain numpy: 105 narratives x 8 queries x 2 systems x 1000 documents.

Each tool begins and ends with its own objects in memory; the time to make them does not count. The first stage fuses
the two systems of a query to 1,000 documents, the second one the queries of a narrative to 100. ranx does not cut
rankings, so the inputs of its second stage are cut to 1,000. The lists of a query share a third of their documents,
those of a narrative have about 3,500 different documents.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.table import Row, compare_costs, take_turns
from keystone.fusion.fuse import fuse_groups, fuse_systems
from keystone.fusion.lists import group_queries_by_topic
from keystone.retrieval.types import Rankings, offsets_of, ranked

NARRATIVES, QUERIES, DEPTH, KEPT_DOCUMENTS, K = 105, 8, 1000, 100, 60
MSMARCO_DOCUMENTS, MSMARCO_SEGMENTS = 10_960_555, 113_520_750
TOPICS = [f"{n:03d}" for n in range(NARRATIVES)]
IDS = [f"{topic}-{q}" for topic in TOPICS for q in range(QUERIES)]
TOPIC_OF = [id.partition("-")[0] for id in IDS]


def make_rankings(documents: int) -> list[Rankings]:
    """BM25 and dense rankings. A score is the document's relevance to the narrative, plus noise of query and system."""
    random = np.random.default_rng(0)
    docs: list[list[NDArray[np.int32]]] = [[], []]
    scores: list[list[NDArray[np.float32]]] = [[], []]
    for _ in TOPICS:
        pool = np.sort(random.choice(documents, 6000, replace=False, shuffle=False)).astype(np.int32)
        of_narrative = random.standard_normal(len(pool))
        for _ in range(QUERIES):
            of_query = of_narrative + 0.7 * random.standard_normal(len(pool))
            for system in range(2):
                values = (of_query + 1.4 * random.standard_normal(len(pool))).astype(np.float32)
                best = np.argsort(-values)[:DEPTH]
                docs[system].append(pool[best])
                scores[system].append(values[best])
    return [ranked(IDS, d, s, DEPTH) for d, s in zip(docs, scores, strict=True)]


def fuse_by_keystone(systems: list[Rankings]) -> tuple[Rankings, Rankings]:
    """Fuse in two stages by Keystone; returns both results."""
    hybrid = fuse_systems(systems, K, DEPTH)
    return hybrid, fuse_groups([hybrid], group_queries_by_topic(TOPIC_OF, TOPICS), K, KEPT_DOCUMENTS)


def fuse_by_numpy(systems: list[Rankings]) -> Rankings:
    """Fuse in two stages by expressions over whole arrays."""

    def stage(group: NDArray[Any], docs: NDArray[Any], ranks: NDArray[Any], depth: int) -> tuple[NDArray[Any], ...]:
        """The groups, documents, ranks and sums of the kept documents."""
        pairs, where = np.unique(group << 32 | docs, return_inverse=True)
        sums = np.bincount(where, 1 / (K + ranks))
        order = np.lexsort((-sums, pairs >> 32))
        counts = np.bincount(pairs >> 32)
        place = np.arange(len(pairs)) - np.repeat(offsets_of(counts)[:-1], counts)
        order, place = order[place < depth], place[place < depth]
        return pairs[order] >> 32, pairs[order] & 0xFFFFFFFF, place + 1, sums[order]

    ranks = np.tile(np.arange(1, DEPTH + 1), len(IDS))
    docs = np.concatenate([system.docs for system in systems]).astype(np.int64)
    found = stage(np.tile(np.repeat(np.arange(len(IDS)), DEPTH), 2), docs, np.tile(ranks, 2), DEPTH)
    topic, kept, _, sums = stage(found[0] // QUERIES, found[1], found[2], KEPT_DOCUMENTS)
    return Rankings(tuple(TOPICS), offsets_of(np.bincount(topic)), kept.astype(np.int32), sums)


def hits_of(rankings: Rankings, queries: Sequence[int], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Some queries of a ranking under other names. The ids have one length, so that ranx compiles only once."""
    return {
        name: dict(
            zip(
                [f"msmarco_v2.1_doc_{doc:010d}" for doc in rankings.of(i).tolist()],
                rankings.scores_of(i).astype(np.float64).tolist(),
                strict=True,
            )
        )
        for i, name in zip(queries, names, strict=True)
    }


def rows() -> list[Row]:
    """Time beside three peers and on a larger corpus, and bytes moved beside a copy."""
    warnings.simplefilter("ignore")
    import ranx
    from pyserini.fusion import reciprocal_rank_fusion
    from pyserini.trectools import TrecRun

    systems, larger = make_rankings(MSMARCO_DOCUMENTS), make_rankings(MSMARCO_SEGMENTS)
    hybrid, fused = fuse_by_keystone(systems)
    first = [hits_of(system, range(len(IDS)), IDS) for system in systems]
    second = [hits_of(hybrid, range(q, len(IDS), QUERIES), TOPICS) for q in range(QUERIES)]

    def trec_run(hits: dict[str, dict[str, float]]) -> TrecRun:
        rows = [(t, "Q0", d, r, s, "x") for t, own in hits.items() for r, (d, s) in enumerate(own.items(), start=1)]
        return TrecRun.from_list(rows)

    in_ranx, in_pyserini = (
        [[make(hits) for hits in stage] for stage in (first, second)] for make in (ranx.Run, trec_run)
    )
    plain = fuse_by_numpy(systems)
    merged = reciprocal_rank_fusion(in_pyserini[1], rrf_k=K, k=KEPT_DOCUMENTS).run_data
    assert np.array_equal(plain.docs, fused.docs)
    assert merged["docid"].str[-10:].astype(int).to_numpy().tolist() == fused.docs.tolist()

    copied = np.empty(count_moved_bytes(systems, hybrid, fused), dtype=np.uint8)
    seconds = take_turns(
        {
            "ours": lambda: fuse_by_keystone(systems),
            "113 M": lambda: fuse_by_keystone(larger),
            "numpy": lambda: fuse_by_numpy(systems),
            "copy": lambda: copied.copy(),
            "pyserini": lambda: [
                reciprocal_rank_fusion(runs, rrf_k=K, k=depth)
                for runs, depth in zip(in_pyserini, (DEPTH, KEPT_DOCUMENTS), strict=True)
            ],
            "ranx": lambda: [ranx.fuse(runs, norm=None, method="rrf", params={"k": K}) for runs in in_ranx],
        },
        repeats=3,
    )
    name, bound = "two-stage RRF, 105 x 8 x 2 x 1000", "hashing and sorting in cache, one core"
    speed, copying = (len(copied) / seconds[job] / 1e9 for job in ("ours", "copy"))
    return [
        compare_costs(f"{name}: ranx", seconds["ours"], seconds["ranx"], 30, bound),
        compare_costs(f"{name}: Pyserini", seconds["ours"], seconds["pyserini"], None, bound),
        compare_costs(f"{name}: plain numpy", seconds["ours"], seconds["numpy"], None, bound),
        compare_costs(f"{name}: 113 M documents, against 11 M", seconds["113 M"], seconds["ours"], None, bound),
        Row(f"{name}: bytes moved, against a copy", speed, copying, "GB/s", speed / copying, None, bound),
    ]


def count_moved_bytes(systems: list[Rankings], hybrid: Rankings, fused: Rankings) -> int:
    """The bytes that must be read and written: documents in, documents and scores out, at each stage."""
    read = sum(rankings.docs.nbytes for rankings in [*systems, hybrid])
    return read + sum(rankings.docs.nbytes + rankings.scores.nbytes for rankings in (hybrid, fused))
