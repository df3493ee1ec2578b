"""Measured recall, and kinds and search parameters that are chosen by it: on random vectors, and on those of texts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.builds.update import update_index
from keystone.indexing.embedder import Effort, Vectors, round_to_grid
from keystone.indexing.errors import UserError
from keystone.indexing.index import SMALLEST, open_index, shard_files
from keystone.indexing.types import MINILM
from keystone.indexing.vectors import recall
from keystone.indexing.vectors import shards as vectors
from keystone.indexing.vectors.embed import load_embedder
from keystone.indexing.vectors.faiss_index import bind_search, build_dense, import_faiss, load_dense, make_faiss_index
from keystone.indexing.vectors.recall import build_chosen, draw_queries, find_exactly, list_by_size, measure_shares
from keystone.indexing.vectors.shards import Shards
from keystone.retrieval.faiss_search import FaissSearcher, open_dense, search_dense
from keystone.retrieval.types import BEST_PASSAGE, Query
from tests.support.indexes.clustered_vectors import make_clustered_vectors
from tests.support.indexes.searches import search_embeddings
from tests.support.indexes.small_corpus import CORPUS, write_corpus
from tests.support.places import ROOT
from tests.support.runs.command_line import keystone

Hold = Callable[[Vectors], Shards]


@pytest.fixture
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hold:
    monkeypatch.setattr(vectors, "SHARD_DOCUMENTS", 300)

    def write(rows: Vectors) -> Shards:
        (folder := tmp_path / f"shards-{len(rows)}").mkdir(exist_ok=True)
        files = [folder / f"{start:06d}.npy" for start in range(0, len(rows), 300)]
        for number, file in enumerate(files):
            np.save(file, rows[number * 300 : number * 300 + 300])
        return Shards(files, len(rows), 0)

    return write


def find_share(searcher: FaissSearcher, queries: Vectors, rows: Vectors, depth: int = 10) -> float:
    """Recall as its definition says it: found rows whose inner product is at least that of the exact last one."""
    products = queries @ rows.T
    least = np.sort(products, axis=1)[:, -depth]
    found = searcher.search([str(n) for n in range(len(queries))], queries, depth)
    return float(np.mean([np.mean(products[n][found.of(n)] >= least[n]) for n in range(len(queries))]))


@given(st.integers(3, 70), st.integers(1, 9), st.sampled_from(["SQ4", "RaBitQ", "Flat"]), st.integers(0, 99))
def test_recall_counts_the_rows_that_no_exact_row_beats(count: int, kinds: int, kind: str, seed: int) -> None:
    """Few different vectors, of which some are zero, so that many tie at any depth."""
    random = np.random.default_rng(seed)
    pool = round_to_grid(random.normal(size=(kinds, 8)))
    pool[0] *= random.integers(0, 2)
    rows = pool[random.integers(0, kinds, count)]
    shards = Held([], count, 0, rows)
    own = draw_queries(shards)
    assert len(own) <= count // 2
    assert np.all(rows[own].any(axis=1))
    index = make_faiss_index(8, kind)
    index.train(rows)
    index.add(rows)
    shares = measure_shares(find_exactly(shards, own, apart=False), bind_search(index), shards)
    _, found = index.search(rows[own], count)
    for query, row in enumerate(own.tolist()):
        products = rows @ rows[row]
        others = [other for other in found[query].tolist() if other != row]
        ordered = sorted(np.delete(products, row).tolist(), reverse=True)
        for place, depth in enumerate((10, 100)):
            within = min(depth, count - 1)
            assert kind != "Flat" or shares[place][query] == 1
            plain = np.mean([products[other] >= ordered[within - 1] for other in others[:within]])
            if kind == "Flat" or within == count - 1:
                assert shares[place][query] == plain


class Held(Shards):
    """Vectors in memory."""

    rows: Vectors

    def __init__(self, files: list[Path], documents: int, cut: int, rows: Vectors) -> None:
        super().__init__(files, documents, cut)
        object.__setattr__(self, "_rows", rows)

    def _open(self, number: int) -> Vectors:  # noqa: ARG002
        held: Vectors = object.__getattribute__(self, "_rows")
        return held


@pytest.mark.parametrize(
    ("count", "queries"), [(1, 0), (9, 4), (150, 75), (1_000, 500), (10_000, 1_000), (40_000, 1_000), (2_000_000, 500)]
)
def test_the_number_of_queries_is_bounded(count: int, queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shards, "take", lambda _, rows: np.ones((len(rows), 1), np.float32))
    assert len(draw_queries(Shards([], count, 0))) == queries


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [0.5, 0.8, 0.9, 0.99, 1.0])
def test_the_smallest_kind_reaches_the_recall_for_vectors_that_the_index_lacks(
    tmp_path: Path, hold: Hold, wanted: float
) -> None:
    rows, queries = make_clustered_vectors(2_400, 1), make_clustered_vectors(600, 7)
    kind, files, found = build_chosen(hold(rows), SMALLEST, wanted, None, tmp_path)
    assert found is not None
    assert (files, found.wanted, found.chosen) == (0, wanted, True)
    assert (found.queries, kind == "Flat") == ((0, True) if wanted == 1 else (1_000, False))
    assert found.at_10 >= wanted
    assert found.bytes == pytest.approx((tmp_path / "dense.faiss").stat().st_size / 2_400, abs=0.1)
    assert find_share(FaissSearcher([tmp_path / "dense.faiss"]), queries, rows) >= wanted
    smaller = list_by_size(rows.shape[1])[: list_by_size(rows.shape[1]).index(kind)]
    for other in smaller[-2:]:
        with pytest.raises(UserError, match=rf"--recall {wanted:g}: found [01]\.\d+ for FAISS index '{other}' with no"):
            build_chosen(hold(rows[: 2_400 - len(other)]), other, wanted, None, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "wanted", "size"),
    [
        ("IVF16,SQ8", 0.9, None),
        ("IVF16,Flat", 0.97, 700),
        ("HNSW16", 0.97, None),
        ("HNSW8_SQ8,RFlat", 0.95, None),
        ("HNSW16", 0.97, 900),
        ("RaBitQ,RFlat", 0.97, None),
        ("PQ16x4fs,Refine(SQ8)", 0.9, 1_000),
        ("PCA16,IVF16,PQ8x4fs,RFlat", 0.9, None),
        ("RaBitQfs,Refine(SQfp16)", 0.99, None),
    ],
)
def test_search_parameters_reach_the_recall_for_vectors_that_the_index_lacks(
    tmp_path: Path, hold: Hold, kind: str, wanted: float, size: int | None
) -> None:
    rows, queries = make_clustered_vectors(2_400, 1), make_clustered_vectors(600, 7)
    shards = hold(rows)
    _, files, found = build_chosen(shards, kind, wanted, size, tmp_path)
    assert found is not None
    assert found.parameters
    assert not found.chosen
    places = shard_files(tmp_path, files) if size else [tmp_path / "dense.faiss"]
    assert find_share(FaissSearcher(places, chosen=found.parameters), queries, rows) >= wanted
    (other := tmp_path / "other").mkdir()
    assert build_chosen(shards, kind, wanted, size, other, Effort(3)) == (kind, files, found)
    for file in places:
        assert file.read_bytes() == (other / file.name).read_bytes()


@pytest.mark.slow
def test_a_kind_chosen_for_vectors_of_texts_reaches_the_recall_for_other_texts(tmp_path: Path, hold: Hold) -> None:
    lines = {line.strip() for page in sorted((ROOT / "docs").glob("*.md")) for line in page.read_text().splitlines()}
    texts = sorted(line for line in lines if len(line) > 60)[:1_500]
    made = load_embedder(MINILM).embed(texts, 2)
    rows, queries = made[np.arange(len(made)) % 5 != 0], made[::5]
    for wanted, expected in ((0.9, "RaBitQ5"), (0.99, "SQ8")):
        (folder := tmp_path / str(wanted)).mkdir()
        kind, _, found = build_chosen(hold(rows[: len(rows) - int(wanted * 10)]), SMALLEST, wanted, None, folder)
        assert found is not None
        sizes = list_by_size(384)
        assert sizes.index(kind) <= sizes.index(expected) + 1
        searched = rows[: len(rows) - int(wanted * 10)]
        share = find_share(FaissSearcher([folder / "dense.faiss"]), queries, searched)
        assert share >= wanted - 0.005, "beyond two standard errors of the mean over 300 queries"


@pytest.mark.slow
def test_kinds_that_fail_for_the_neighbours_of_some_queries_are_not_built(
    tmp_path: Path, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = hold(make_clustered_vectors(2_400, 1))
    (whole := tmp_path / "whole").mkdir()
    expected = build_chosen(shards, SMALLEST, 0.9, None, whole)
    monkeypatch.setattr(recall, "TRIAL_QUERIES", 20)
    built: list[str] = []

    def build(shards: Shards, kind: str, *more: Any) -> None:
        built.append(kind)
        build_dense(shards, kind, *more)

    monkeypatch.setattr(recall, "build_dense", build)
    (tried := tmp_path / "tried").mkdir()
    kind, *_ = build_chosen(shards, SMALLEST, 0.9, None, tried)
    assert list_by_size(32).index(kind) - list_by_size(32).index(expected[0]) in (0, 1)
    assert len(built) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("passages", [False, True])
@pytest.mark.parametrize("size", [None, 5])
def test_an_index_says_its_recall_and_a_search_uses_the_chosen_parameters(
    tmp_path: Path, passages: bool, size: int | None
) -> None:
    settings = BuildSettings(faiss="RaBitQ,RFlat", recall=0.9, passages=passages, faiss_shard=size)
    index, _ = build_index(write_corpus(tmp_path / "c.jsonl"), tmp_path / "index", settings)
    assert index.recall is not None
    assert (index.recall.wanted, index.recall.at_10) == (0.9, 1)
    assert index.recall.parameters.startswith("k_factor_rf=")
    said = json.loads((index.folder / "index.json").read_text())
    assert said["recall"]["parameters"] == index.recall.parameters
    asked = [Query("1", "1-1", "", "", "bees and honey")]
    found = search_embeddings(index, asked, depth=9)
    exact, _ = build_index(tmp_path / "c.jsonl", tmp_path / "exact", BuildSettings(passages=passages))
    assert (exact.recall, "recall" in json.loads((exact.folder / "index.json").read_text())) == (None, False)
    assert found.docs.tolist() == search_embeddings(exact, asked, depth=9).docs.tolist()
    dense = open_dense(index, "", BEST_PASSAGE)
    parts = dense._passages.parts if passages else dense._parts  # type: ignore[attr-defined]
    assert {f"k_factor_rf={import_faiss().downcast_index(part).k_factor:.0f}" for part in parts} == {
        index.recall.parameters
    }
    assert sorted(path.name for path in index.folder.iterdir() if "kind" in path.name or "recall" in path.name) == []


@pytest.mark.slow
def test_the_command_says_what_it_chose_and_says_it_again(tmp_path: Path) -> None:
    corpus, out = write_corpus(tmp_path / "c.jsonl"), tmp_path / "index"
    command = ("index", corpus, "--out", out, "--recall", ".9", "--dense", "all", "--quiet")
    first, second = keystone(*command), keystone(*command)
    assert (first.returncode, second.returncode) == (0, 0)
    index = open_index(out)
    assert index.recall is not None
    line = (
        f"{out}: vectors as {index.faiss}: {index.recall.bytes:,.0f} bytes a vector, recall {index.recall.at_10:.4f} at"
    )
    assert line in first.stderr
    assert line in second.stderr
    told = json.loads(keystone(*command, "--json").stdout)["result"]["recall"]
    assert [(one["vectors"], one["faiss"], one["wanted"]) for one in told] == [(None, index.faiss, 0.9)]
    (tmp_path / "new.jsonl").write_text(json.dumps({"id": "new", "text": CORPUS["bees"][1] + " Bees."}) + "\n")
    updated, _ = update_index(out, [tmp_path / "new.jsonl"])
    assert updated.recall is not None
    assert (updated.recall.wanted, updated.recall.chosen) == (0.9, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (BuildSettings(recall=0), r"--recall: found 0, expected a number above 0 and at most 1"),
        (BuildSettings(recall=1.5), r"--recall: found 1.5, expected a number above 0"),
        (BuildSettings(recall=float("nan")), r"--recall: found nan, expected a number above 0"),
        (BuildSettings(recall=0.9, faiss=None), r"--recall without vectors of all documents, expected --dense all"),
        (BuildSettings(recall=0.9, embedding=None), r"--recall without vectors of all documents"),
        (BuildSettings(faiss=SMALLEST), r"FAISS index 'smallest': found without --recall, expected with it"),
    ],
)
def test_a_recall_that_cannot_be_is_refused_before_any_work(
    tmp_path: Path, settings: BuildSettings, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        build_index(write_corpus(tmp_path / "c.jsonl"), tmp_path / "index", settings)
    assert not list(tmp_path.glob("*index*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["Flat", "SQ8", "SQ4", "RaBitQ4", "HNSW16_SQ8", "IVF16,SQ8", "IVF16,Flat", "PQ8x4", "PQ2x4fs,RFlat", "PCA16,SQ8",
     "RaBitQfs,Refine(SQ8)", "RQ4x4fs", "IVF16,RaBitQfs,RFlat"],
)  # fmt: skip
def test_a_ranking_depends_neither_on_threads_nor_on_other_queries(tmp_path: Path, hold: Hold, kind: str) -> None:
    rows = np.repeat(make_clustered_vectors(600, 1), 2, axis=0)  # each vector twice, so that ties are cut
    build_chosen(hold(rows), kind, None, None, tmp_path)
    queries = make_clustered_vectors(60, 2)
    index, names = load_dense(tmp_path / "dense.faiss"), [str(n) for n in range(60)]
    found = []
    for threads in (1, 2, 3):
        import_faiss().omp_set_num_threads(threads)
        found.append(search_dense(index, names, queries, 11))
    for other in found[1:]:
        assert (other.docs.tolist(), other.scores.tobytes()) == (found[0].docs.tolist(), found[0].scores.tobytes())
    for n in range(0, 60, 7):
        alone = search_dense(index, ["q"], queries[n : n + 1], 11)
        assert (alone.docs.tolist(), alone.scores.tobytes()) == (
            found[0].of(n).tolist(), found[0].scores_of(n).tobytes()
        )  # fmt: skip
