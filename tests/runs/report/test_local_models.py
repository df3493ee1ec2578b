"""A dry run says which models would run on this machine, and fetches none of them."""

import json
from pathlib import Path

import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.encoders.weights import measure_footprint
from keystone.indexing.impacts import settle_impacts
from keystone.indexing.index import Index
from keystone.indexing.types import Embedding
from keystone.indexing.vectors.embed import load_embedder, settle_embedding
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.models.checkpoints import write_checkpoint
from tests.support.runs.command_line import keystone

SYSTEMS = "{bm25: {kind: bm25}, a: {kind: dense, vectors: small}, b: {kind: impact, impacts: splade}}"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index with two models of vectors, one of which no system uses, and one of impacts."""
    folder = tmp_path_factory.mktemp("models")
    names = ("small", "unused")
    models = {name: str(write_checkpoint(folder / name, pooling="mean", seed=n)) for n, name in enumerate(names)}
    vectors = {name: settle_embedding(Embedding(model), (), print) for name, model in models.items()}
    impacts = {"splade": settle_impacts(str(write_checkpoint(folder / "sparse", head="words")))}
    settings = BuildSettings(embedding=None, vectors=vectors, impacts=impacts)
    return build_index(write_corpus(folder / "corpus.jsonl"), folder / "index", settings)[0]


@pytest.mark.slow
def test_a_dry_run_lists_the_models_of_its_systems_and_its_reranker(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    given = [f"index={index.folder}", f"topics={write_topics(tmp_path / 't.jsonl')}", f"out={tmp_path / 'out'}"]
    given += [f"retrieval.systems={SYSTEMS}", "rerank={method: model, model: nobody/reranker}", "answer.method=none"]
    options = [part for one in [*given, "track=none", "run_id=a"] for part in ("--set", one)]
    shown = keystone("run", *options, "--dry-run", "--json")
    assert shown.returncode == 0, shown.stderr
    models = json.loads(shown.stdout)["result"]["models"]
    folder = index.folder.parent
    assert {one["use"]: (one["model"], one["folder"]) for one in models} == {
        "impacts splade": (str(folder / "sparse"), str(folder / "sparse")),
        "embeddings small": (str(folder / "small"), str(folder / "small")),
        "reranker": ("nobody/reranker", None),
    }
    said = keystone("run", *options, "--dry-run").stdout
    assert "model on this machine, reranker: nobody/reranker: would be fetched, size not known" in said
    assert f"model on this machine, embeddings small: {folder / 'small'}: here, " in said
    assert not list((tmp_path / "hub").glob("models--*"))


def test_the_memory_of_weights_is_four_bytes_a_number(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", pooling="mean")
    (folder / "pytorch_model.bin").write_bytes(bytes(10_000))  # a second copy, which no fetch takes
    found = measure_footprint("embeddings", str(folder))
    weights, small = folder / "model.safetensors", [*folder.rglob("*.json")]
    header = 8 + int.from_bytes(weights.read_bytes()[:8], "little")
    assert found.memory == weights.stat().st_size - header
    assert found.disk == sum(path.stat().st_size for path in (weights, *small))
    assert found.folder == str(folder)
    assert load_embedder(Embedding(str(folder))).dimension
