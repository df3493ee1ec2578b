"""(f) A FAISS index in mapped files beside the same index as one in memory: memory to build and to search, and time.

Memory is a process's own, without the pages of files, which the system takes back when it needs them.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Event, Thread

import numpy as np

from benchmarks.table import Row, compare_costs, take_turns
from keystone.indexing.embedder import Vectors, round_to_grid
from keystone.indexing.index import shard_files
from keystone.indexing.vectors.faiss_index import (
    build_dense,
    build_dense_shards,
    import_faiss,
    load_dense,
    load_dense_shards,
)
from keystone.indexing.vectors.shards import SHARD_DOCUMENTS, Shards
from keystone.retrieval.faiss_search import search_dense

FILES, DIMENSION, QUERIES, DEPTH, PARTS = 24, 384, 200, 1000, 8
FACTORIES = ("Flat", "IVF256,PQ48x4")


def rows() -> list[Row]:
    """Memory of building and of searching, and the time of a batch of queries, for an exact and a compressed index."""
    with tempfile.TemporaryDirectory() as folder:
        random = np.random.default_rng(1)
        for number in range(FILES):
            np.save(Path(folder, f"{number:08d}.npy"), _draw_vectors(SHARD_DOCUMENTS, random))
        return [row for factory in FACTORIES for row in _compare(factory, Path(folder), _draw_vectors(QUERIES, random))]


def _compare(factory: str, folder: Path, queries: Vectors) -> list[Row]:
    built = {way: _measure_in_child("build", way, factory, folder) for way in ("one", "many")}
    searched = {way: _measure_in_child("search", way, factory, folder) for way in ("one", "many")}
    one, many = _load("one", factory, folder), _load("many", factory, folder)
    names = [str(i) for i in range(QUERIES)]
    seconds = take_turns(
        {
            "ours": lambda: search_dense(many, names, queries, DEPTH),
            "peer": lambda: search_dense(one, names, queries, DEPTH),
        },
        repeats=5,
    )
    name = f"{factory}, {FILES * SHARD_DOCUMENTS:,} vectors in {PARTS} mapped files: beside one in memory"
    mine, peer = (QUERIES / seconds[way] for way in ("ours", "peer"))
    return [
        compare_costs(f"{name}: memory of building", built["many"] / 1e6, built["one"] / 1e6,
               3 if factory == "Flat" else None, "one file's vectors, and the sample for training", "MB"),
        compare_costs(f"{name}: memory of searching", searched["many"] / 1e6, searched["one"] / 1e6,
               5 if factory == "Flat" else None, "queries, hits, tables of FAISS", "MB"),
        Row(f"{name}: queries a second, top {DEPTH}", mine, peer, "1/s", mine / peer,
            0.8 if factory == "Flat" else None, "1,000 hits of each file, of which the best 1,000 are kept"),
    ]  # fmt: skip


def _draw_vectors(count: int, random: np.random.Generator) -> Vectors:
    return round_to_grid(random.normal(size=(count, DIMENSION)))


def _find_files(way: str, factory: str, folder: Path) -> list[Path]:
    made = folder / f"{factory}-{way}"
    made.mkdir(exist_ok=True)
    return shard_files(made, PARTS) if way == "many" else [made / "dense.faiss"]


def _load(way: str, factory: str, folder: Path) -> list[object]:
    files = _find_files(way, factory, folder)
    return load_dense_shards(files) if way == "many" else [load_dense(files[0])]


def _measure_in_child(step: str, way: str, factory: str, folder: Path) -> float:
    """Run a step in a process of its own; returns the bytes that it takes."""
    command = [sys.executable, "-m", "benchmarks.dense_shards", step, way, factory, str(folder)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _own_memory() -> int:
    """The bytes of this process, without mapped files."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def main(step: str, way: str, factory: str, folder: Path) -> None:
    """Build or search, and print the most bytes that this took."""
    import_faiss()
    files = _find_files(way, factory, folder)
    shards = Shards(sorted(folder.glob("*.npy")), FILES * SHARD_DOCUMENTS, 0)
    before, most, done = _own_memory(), [0], Event()

    def watch() -> None:
        while not done.wait(0.005):
            most[0] = max(most[0], _own_memory())

    watcher = Thread(target=watch)
    watcher.start()
    if step == "search":
        parts = _load(way, factory, folder)
        search_dense(parts, ["q"], _draw_vectors(1, np.random.default_rng(2)), DEPTH)
    elif way == "many":
        build_dense_shards(shards, factory, -(-shards.documents // PARTS), files[0].parent)
    else:
        build_dense(shards, factory, files[0])
    most[0] = max(most[0], _own_memory())
    done.set()
    watcher.join()
    print(most[0] - before)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
