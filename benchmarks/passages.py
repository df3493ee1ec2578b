"""(d) Documents by their passages beside bare FAISS search of the same passages.

Both measure the processor time of all threads, since other work on the machine disturbs it least.
"""

import os

import numpy as np

from benchmarks.dense import make_clusters
from benchmarks.table import Row, compare_costs, take_turns
from keystone.indexing.vectors.faiss_index import import_faiss
from keystone.indexing.vectors.passages import PassageIndex
from keystone.retrieval.faiss_search import rank_by_passages
from keystone.retrieval.types import PassageScore

PASSAGES, MOST_OF_A_DOCUMENT, DIMENSION, QUERIES, DEPTH = 100_000, 19, 384, 500, 1000
THREADS = os.cpu_count() or 1


def rows() -> list[Row]:
    """The processor time of ranking documents by their best passage, and by the default score."""
    faiss = import_faiss()
    index, random = faiss.IndexFlatIP(DIMENSION), np.random.default_rng(1)
    centres = random.normal(size=(1_000, DIMENSION))
    for _ in range(0, PASSAGES, 10_000):
        index.add(make_clusters(centres, 10_000, random))
    ends = np.cumsum(random.integers(1, MOST_OF_A_DOCUMENT + 1, PASSAGES), dtype=np.int64)
    passages = PassageIndex([index], np.concatenate([[0], ends[ends < PASSAGES], [PASSAGES]]))
    queries = make_clusters(centres, QUERIES, random)
    names = [str(i) for i in range(QUERIES)]
    faiss.omp_set_num_threads(THREADS)
    seconds = take_turns(
        {
            "best passage": lambda: rank_by_passages(passages, names, queries, DEPTH, PassageScore(1)),
            "default": lambda: rank_by_passages(passages, names, queries, DEPTH, PassageScore(5, 0.5)),
            "peer": lambda: index.search(queries, DEPTH),
        },
        repeats=9,
        cpu=True,
    )
    return [
        compare_costs(
            f"dense search, {PASSAGES:,} passages, {QUERIES} queries, top {DEPTH} by the {way}: beside bare FAISS",
            seconds[way],
            seconds["peer"],
            0.95,
            "inner products (FAISS), then one pass over them",
            "CPU s",
        )
        for way in ("best passage", "default")
    ]
