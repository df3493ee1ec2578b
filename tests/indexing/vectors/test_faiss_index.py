"""FAISS indexes by factory string: exact, approximate, impossible, and the same bytes each time."""

from pathlib import Path

import numpy as np
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.vectors import shards as vectors
from keystone.indexing.vectors.faiss_index import build_dense, import_faiss, load_dense
from keystone.indexing.vectors.shards import Shards
from keystone.retrieval.faiss_search import search_dense
from keystone.retrieval.types import Query
from tests.support.indexes.clustered_vectors import COUNT, make_clustered_vectors
from tests.support.indexes.searches import search_embeddings
from tests.support.indexes.small_corpus import write_corpus


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shards:
    monkeypatch.setattr(vectors, "SHARD_DOCUMENTS", 300)
    files = [tmp_path / f"{n}.npy" for n in range(-(-COUNT // 300))]
    for n, file in enumerate(files):
        np.save(file, make_clustered_vectors(COUNT, 1)[n * 300 : n * 300 + 300])
    return Shards(files, COUNT, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factory", "parameters", "recall"),
    [
        ("Flat", "", 1.0),
        ("HNSW32", "efSearch=200", 0.95),
        ("IVF16,Flat", "nprobe=16", 1.0),
        ("IVF16,Flat", "", 0.8),
        ("IVF16_HNSW32,Flat", "nprobe=8", 0.9),
        ("SQ8", "", 0.9),
        ("PQ8x4", "", 0.2),
        ("OPQ8,IVF16,PQ8x4", "nprobe=16", 0.2),
    ],
)
def test_an_index_has_the_same_bytes_each_time_and_finds_most_hits(
    tmp_path: Path, shards: Shards, factory: str, parameters: str, recall: float
) -> None:
    for name, threads in (("one", 1), ("two", 4)):
        import_faiss().omp_set_num_threads(threads)
        build_dense(shards, factory, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    queries = make_clustered_vectors(20, 2)
    names = [str(i) for i in range(20)]
    found = search_dense(load_dense(tmp_path / "one", parameters), names, queries, 10)
    exact = np.argsort(-(queries @ make_clustered_vectors(COUNT, 1).T), axis=1, kind="stable")[:, :10]
    hits = [len(set(found.of(i).tolist()) & set(exact[i].tolist())) for i in range(20)]
    assert sum(hits) >= recall * 200
    for i in range(20):
        scores = found.scores_of(i)
        assert np.all((scores[:-1] > scores[1:]) | ((scores[:-1] == scores[1:]) & (np.diff(found.of(i)) > 0)))


def test_an_index_that_finds_fewer_documents_gives_shorter_rankings(tmp_path: Path, shards: Shards) -> None:
    build_dense(shards, "IVF64,Flat", tmp_path / "index")
    found = search_dense(load_dense(tmp_path / "index", "nprobe=1"), ["a", "b"], make_clustered_vectors(2, 2), 1000)
    assert all(0 < len(found.of(i)) < 1000 for i in range(2))
    assert found.docs.min() >= 0
    assert np.isfinite(found.scores).all()


@pytest.mark.parametrize(
    "factory",
    ["", "Foo", "IVF,Flat", "PQ7", "HNSW0", "HNSW1", "IVF0,Flat", "Flat,Flat", "SQ0", "LSH", "IDMap,Flat", "SQ8,IDMap2",
     "NSG32", "PCA32,NSG32,SQ8", "HNSW16,PQ8x4", "HNSW16_PQ8x4,RFlat", "ZnLattice8x10_6", "FlatIPPanorama4"],
)  # fmt: skip
def test_an_impossible_factory_string_is_an_error_before_any_work(tmp_path: Path, factory: str) -> None:
    with pytest.raises(UserError, match=r"^FAISS index '.*': .+; expected a factory string .* inner product.*$"):
        build_index(write_corpus(tmp_path / "c.jsonl"), tmp_path / "index", BuildSettings(faiss=factory))
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("factory", "needed"), [("IVF4096,Flat", "at least 4096"), ("PQ4x12", "at least 4096"), ("OPQ7,Flat", "multiple")]
)
def test_too_few_documents_to_train_on_is_an_error_with_the_number(
    tmp_path: Path, shards: Shards, factory: str, needed: str
) -> None:
    with pytest.raises(UserError, match=rf"FAISS index '{factory}': found 2000 documents, expected .*{needed}"):
        build_dense(shards, factory, tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("parameters", ["nprobe=2", "foo=1", "nprobe", "="])
def test_a_parameter_that_the_index_lacks_is_an_error(index: Index, parameters: str) -> None:
    with pytest.raises(UserError, match=r"retrieval.faiss: found '.*': .*could not"):
        search_embeddings(index, [Query("1", "1-1", "", "", "bees")], depth=3, faiss=parameters)


@pytest.mark.parametrize("parameters", ["k_factor_rf=0", "k_factor_rf=0.5", "nprobe=2", "k_factor_rf"])
def test_a_refined_index_computes_anew_at_least_the_wanted_hits(
    tmp_path: Path, shards: Shards, parameters: str
) -> None:
    build_dense(shards, "SQ4,RFlat", tmp_path / "index")
    assert load_dense(tmp_path / "index").k_factor == 10
    with pytest.raises(UserError, match=rf"retrieval.faiss: found '{parameters}': "):
        load_dense(tmp_path / "index", parameters)


def test_an_inverted_file_must_search_at_least_one_list(tmp_path: Path, shards: Shards) -> None:
    build_dense(shards, "IVF16,Flat", tmp_path / "index")
    assert load_dense(tmp_path / "index").nprobe == 4
    with pytest.raises(UserError, match="nprobe"):
        load_dense(tmp_path / "index", "nprobe=0")
