"""Kinds of FAISS index on the vectors of a `Flat` index: bytes, recall, seconds to build, speed beside `Flat`.

`python -m benchmarks.recall INDEX/dense.faiss` prints a table in Markdown. The queries are a sample of the vectors, as
when an index is built. Times are processor time.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import read_processor_time, take_turns
from keystone.indexing.vectors.faiss_index import build_dense, find_graph, import_faiss, load_dense, view_vectors
from keystone.indexing.vectors.recall import (
    Truth,
    bind_parts,
    draw_queries,
    find_exactly,
    measure_shares,
    open_parts_of,
)
from keystone.indexing.vectors.shards import SHARD_DOCUMENTS, Shards
from keystone.retrieval.faiss_search import search_dense

DEPTH = 100
KINDS = (
    ("Flat", ""), ("SQfp16", ""), ("SQ8", ""), ("RaBitQ6", ""), ("SQ6", ""), ("RaBitQ5", ""), ("RaBitQ4", ""),
    ("SQ4", ""), ("RaBitQ3", ""), ("RaBitQ2", ""), ("RaBitQ", ""), ("PQ96x4fs", ""),
    ("PQ96x4fs,RFlat", "k_factor_rf=10"), ("PQ96x4fs,Refine(SQ8)", "k_factor_rf=10"),
    ("RaBitQfs,RFlat", "k_factor_rf=10"), ("RaBitQfs,Refine(SQ8)", "k_factor_rf=10"), ("IVF64,Flat", "nprobe=16"),
    ("IVF64,SQ8", "nprobe=16"), ("IVF64,PQ96x4fs,Refine(SQ8)", "nprobe=16,k_factor_rf=10"),
    ("HNSW32", "efSearch=64"), ("HNSW32_SQ8", "efSearch=64"),
)  # fmt: skip
"""Factory strings with their search parameters."""


def main(path: Path) -> None:
    """Build and measure all kinds, and print a row for each."""
    vectors = view_vectors(held := load_dense(path))
    print(f"{held.ntotal:,} vectors of {held.d} numbers, top {DEPTH}\n")
    print("| kind | search | bytes a vector | recall@10 | recall@100 | build, s | queries a second, Flat = 1 |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{start}.npy") for start in range(0, len(vectors), SHARD_DOCUMENTS)]
        for number, file in enumerate(files):
            np.save(file, vectors[number * SHARD_DOCUMENTS : (number + 1) * SHARD_DOCUMENTS])
        shards = Shards(files, len(vectors), 0)
        truths = [find_exactly(shards, draw_queries(shards, apart), apart) for apart in (False, True)]
        for kind, parameters in KINDS:
            print(_measure(kind, parameters, shards, truths, held, Path(folder, "index")), flush=True)


def _measure(kind: str, parameters: str, shards: Shards, truths: list[Truth], flat: Any, place: Path) -> str:
    before = read_processor_time()
    build_dense(shards, kind, place)
    built = read_processor_time() - before
    index = load_dense(place, parameters)
    truth = truths[find_graph(index) is not None]
    names = [str(row) for row in truth.own.tolist()]

    def run(searched: Any) -> Callable[[], object]:
        return partial(search_dense, searched, names, truth.queries, DEPTH)

    import_faiss().omp_set_num_threads(1)
    seconds = take_turns({"own": run(index), "flat": run(flat)}, repeats=3, cpu=True)
    measured = bind_parts(open_parts_of([place], truth.own), parameters)
    shares = measure_shares(truth, measured, shards).mean(axis=1)
    size = place.stat().st_size / shards.documents
    ratio = seconds["flat"] / seconds["own"]
    return f"| `{kind}` | {parameters} | {size:,.0f} | {shares[0]:.3f} | {shares[1]:.3f} | {built:.1f} | {ratio:.2f} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
