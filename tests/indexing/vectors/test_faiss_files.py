"""A FAISS index in several mapped files gives the hits of one index in memory, and takes the memory of one file."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.embedder import Vectors, round_to_grid
from keystone.indexing.errors import UserError
from keystone.indexing.index import shard_files
from keystone.indexing.vectors import faiss_index as dense_shards
from keystone.indexing.vectors import shards as vectors
from keystone.indexing.vectors.faiss_index import (
    build_dense,
    build_dense_shards,
    make_faiss_index,
    write_dense,
)
from keystone.indexing.vectors.shards import Shards
from keystone.retrieval.faiss_search import FaissSearcher, search_dense
from keystone.retrieval.types import Query, Rankings
from tests.support import programs
from tests.support.indexes.clustered_vectors import COUNT, make_clustered_vectors
from tests.support.indexes.searches import search_embeddings
from tests.support.indexes.small_corpus import write_corpus
from tests.support.places import ROOT

pytestmark = pytest.mark.slow

NAMES = [str(i) for i in range(20)]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    folder = tmp_path_factory.mktemp("vectors")
    files = []
    for start in range(0, COUNT, vectors.SHARD_DOCUMENTS):
        files.append(folder / f"{start}.npy")
        np.save(files[-1], make_clustered_vectors(COUNT, 1)[start : start + vectors.SHARD_DOCUMENTS])
    return Shards(files, COUNT, 0)


def same(one: Rankings, other: Rankings) -> bool:
    return (
        one.offsets.tolist() == other.offsets.tolist()
        and one.docs.tolist() == other.docs.tolist()
        and one.scores.tobytes() == other.scores.tobytes()
    )


@given(st.data())
def test_flat_parts_give_the_exact_results_of_one_index(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 120), label="documents")
    random = np.random.default_rng(data.draw(st.integers(0, 99), label="seed"))
    kinds = data.draw(st.integers(1, 9), label="different vectors")  # the fewer, the more ties
    found = round_to_grid(random.normal(size=(kinds, 8)))[random.integers(0, kinds, count)]
    asked = round_to_grid(random.normal(size=(3, 8)))
    cuts = sorted(data.draw(st.sets(st.integers(1, count), max_size=6), label="boundaries") - {count})
    depth = data.draw(st.integers(1, 130), label="depth")
    parts = [_flat(part) for part in np.split(found, cuts)]
    one, many = (search_dense(index, NAMES[:3], asked, depth) for index in (_flat(found), parts))
    assert same(one, many)
    plain = [sorted(range(count), key=lambda row: (-float(query @ found[row]), row))[:depth] for query in asked]
    assert [many.of(i).tolist() for i in range(3)] == plain


def _flat(rows: Vectors) -> Any:
    index = make_faiss_index(rows.shape[1], "Flat")
    index.add(np.ascontiguousarray(rows))
    return index


@pytest.mark.parametrize(
    ("factory", "parameters"),
    [
        ("Flat", ""),
        ("IVF16,Flat", ""),
        ("IVF16,Flat", "nprobe=3"),
        ("IVF16,PQ8x4", "nprobe=5"),
        ("SQ8", ""),
        ("PQ8x4", ""),
        ("PCA16,IVF16,PQ8x4", ""),
    ],
)
def test_files_of_any_size_find_what_the_single_file_finds(
    tmp_path: Path, shards: Shards, factory: str, parameters: str
) -> None:
    build_dense(shards, factory, tmp_path / "one")
    for size in (299, 1_100, 2 * COUNT):
        folder = tmp_path / str(size)
        folder.mkdir()
        count = build_dense_shards(shards, factory, size, folder)
        assert count == -(-COUNT // size)
        for depth in (1, 10, 500):
            one = FaissSearcher([tmp_path / "one"], parameters).search(NAMES, make_clustered_vectors(20, 2), depth)
            many = FaissSearcher(shard_files(folder, count), parameters, mapped=True).search(
                NAMES, make_clustered_vectors(20, 2), depth
            )
            assert same(one, many)


def test_graphs_in_parts_find_nearly_all_hits(tmp_path: Path, shards: Shards) -> None:
    files = shard_files(tmp_path, build_dense_shards(shards, "HNSW32", 700, tmp_path))
    found = FaissSearcher(files, "efSearch=200", mapped=True).search(NAMES, make_clustered_vectors(20, 2), 10)
    exact = np.argsort(-(make_clustered_vectors(20, 2) @ make_clustered_vectors(COUNT, 1).T), axis=1, kind="stable")[
        :, :10
    ]
    assert sum(len(set(found.of(i).tolist()) & set(exact[i].tolist())) for i in range(20)) >= 190


def test_an_index_in_files_is_built_by_the_command_and_searched_like_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    queries = [Query(str(n), f"{n}-1", "", "", text) for n, text in enumerate(["bees", "lava", "twins and sugar"])]
    whole, _ = build_index(corpus, tmp_path / "whole")
    one = search_embeddings(whole, queries, depth=5)
    with monkeypatch.context() as patch:
        made: list[Path] = []

        def write(index: Any, path: Path) -> None:
            if len(made) == 3:
                raise KeyboardInterrupt
            made.append(path)
            path.write_bytes(b"")
            write_dense(index, path)

        patch.setattr(dense_shards, "write_dense", write)
        with pytest.raises(KeyboardInterrupt):
            build_index(corpus, tmp_path / "index", BuildSettings(faiss_shard=2))
    times = {path: path.stat().st_mtime_ns for path in made if path.name.startswith("dense-")}
    assert len(times) == 2
    index, _ = build_index(corpus, tmp_path / "index", BuildSettings(faiss_shard=2))
    assert {path: (index.folder / path.name).stat().st_mtime_ns for path in times} == times, "made again"
    names = [f"dense-000{n}.faiss" for n in range(5)]
    assert sorted(path.name for path in index.folder.iterdir()) == [*names, "index.json", "lucene", "postings", "store"]
    assert (index.faiss, index.faiss_shards, whole.faiss_shards) == ("Flat", 5, 0)
    assert same(one, search_embeddings(index, queries, depth=5))
    assert not build_index(corpus, tmp_path / "index", BuildSettings(faiss_shard=2))[1]
    with pytest.raises(UserError, match="other settings"):
        build_index(corpus, tmp_path / "index", BuildSettings(faiss_shard=3))
    (index.folder / names[3]).write_bytes((index.folder / names[3]).read_bytes()[:-8])
    with pytest.raises(UserError, match=r"dense-0003.faiss: not a whole FAISS index"):
        search_embeddings(index, queries, depth=5)
    (index.folder / names[3]).unlink()
    with pytest.raises(UserError, match=r"dense-0003.faiss: not a whole FAISS index"):
        search_embeddings(index, queries, depth=5)


MEMORY = """
import ctypes, json, sys
from pathlib import Path
import numpy as np
from keystone.indexing.vectors.faiss_index import import_faiss, load_dense
from keystone.indexing.vectors.faiss_index import load_dense_shards
from keystone.retrieval.faiss_search import search_dense

def anonymous():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024

files = [Path(name) for name in sys.argv[1:]]
import_faiss().omp_set_num_threads(1)
ctypes.CDLL(None).malloc_trim(0)  # else the index may take memory that imports have freed
before = anonymous()
parts = load_dense_shards(files) if len(files) > 1 else [load_dense(files[0])]
search_dense(parts, ["q"], np.ones((1, parts[0].d), np.float32), 10)
print(anonymous() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell kinds of memory")
@pytest.mark.parametrize("factory", ["Flat", "IVF16,Flat", "SQ8", "HNSW16"])
def test_files_in_parts_stay_on_disk_when_searched(tmp_path: Path, factory: str) -> None:
    """The system can reclaim the pages of a mapped file, unlike a process's own memory."""
    rows = round_to_grid(np.random.default_rng(0).normal(size=(16_000, 256)))
    files = [tmp_path / f"{start}.npy" for start in range(0, len(rows), vectors.SHARD_DOCUMENTS)]
    for number, file in enumerate(files):
        np.save(file, rows[number * vectors.SHARD_DOCUMENTS : (number + 1) * vectors.SHARD_DOCUMENTS])
    shards = Shards(files, len(rows), 0)
    build_dense(shards, factory, tmp_path / "one")
    files = shard_files(tmp_path, build_dense_shards(shards, factory, 4_000, tmp_path))

    def taken(paths: list[Path]) -> int:
        command = [sys.executable, "-c", MEMORY, *map(str, paths)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return int(json.loads(programs.run(command, check=True, capture_output=True, env=environment).stdout))

    whole = (tmp_path / "one").stat().st_size
    assert taken([tmp_path / "one"]) > 0.8 * whole
    assert taken(files) < 0.3 * whole
