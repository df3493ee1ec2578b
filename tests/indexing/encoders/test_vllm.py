"""Vectors and scores by vLLM's engine in this process, beside those of ONNX Runtime and PyTorch."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keystone.generation.rerank.settings import RerankSettings
from keystone.indexing.builds.settings import settle_vectors
from keystone.indexing.encoders.checkpoint import read_checkpoint
from keystone.indexing.encoders.dense import EngineEncoder
from keystone.indexing.encoders.pairs import open_pair_scorer
from keystone.indexing.errors import MissingPackage, UserError
from keystone.indexing.index import Index
from keystone.indexing.types import Embedding
from keystone.indexing.vectors.embed import load_model
from tests.support.models.checkpoints import write_checkpoint
from tests.support.servers.vllm import TINY_MODEL, run

TIMEOUT_S = 1500
"""The first of these tests loads six engines."""


@pytest.fixture(scope="module")
def said(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of a program that uses six engines in turn."""
    report = tmp_path_factory.mktemp("engines") / "report.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEYSTONE_PACKAGES", str(Path(np.__file__).parents[1]))
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        start = "import sys, pathlib, tests.support.models.engines_in_turn as own"
        places = (index.folder, TINY_MODEL, report)
        run("python", "-c", f"{start}; own.main(*map(pathlib.Path, sys.argv[1:]))", *places, folder=report.parent)
    return json.loads(report.read_text())


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("step", "cut"), [("embed", [4, 5]), ("cls", [4, 5]), ("lasttoken", [])])
def test_vectors_equal_those_without_the_engine_by_each_way_of_pooling(step: str, cut: list[int], said: Any) -> None:
    found, expected = (np.array(said[step][name]) for name in ("found", "expected"))
    units = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (found, expected)]
    cosines = units[0] @ units[1].T
    assert np.diag(cosines).min() > 0.9999
    assert np.tril(cosines, -1).max() < 0.999, "the texts have different vectors"
    assert said[step]["cut"] == [cut, cut]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(TIMEOUT_S)
def test_the_index_names_the_engine(said: Any) -> None:
    assert said["embed"]["embedding"]["backend"] == "vllm"


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(TIMEOUT_S)
def test_scores_equal_those_of_onnx_and_pytorch_and_the_manifest_names_engine_and_device(said: Any) -> None:
    for name in ("rerank", "answer"):
        assert said[name]["found"] == pytest.approx(said[name]["expected"], abs=1e-4)
    assert said["rerank"]["manifest"] == {"backend": "vllm", "device": "cpu"}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(TIMEOUT_S)
def test_there_is_one_engine_at_a_time_and_none_after_a_chat(said: Any) -> None:
    assert said["chat"]["replied"]
    assert {name: step["engines"] for name, step in said.items()} == {
        "embed": [1],
        "cls": [1],
        "lasttoken": [1],
        "chat": [1, 0, 0],
        "rerank": [1],
        "answer": [1],
    }


def test_without_vllm_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    encoder = Embedding(str(write_checkpoint(tmp_path / "encoder", pooling="mean")), backend="vllm")
    with pytest.raises(MissingPackage, match=r"pip install 'keystone-rag\[vllm\]'"):
        load_model(encoder)
    with pytest.raises(MissingPackage, match=r"pip install 'keystone-rag\[vllm\]'"):
        open_pair_scorer(str(write_checkpoint(tmp_path / "cross-encoder", head="labels")), "vllm")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"backend": "torch"}, r"found the backend 'torch', expected vllm"),
        ({"backend": "vllm", "url": "http://localhost:1/v1"}, r"found the backend vllm for encoder, at a URL"),
        ({"backend": "vllm", "model": "all-MiniLM-L6-v2"}, r"which comes with Keystone; expected the folder of"),
        ({"backend": "vllm", "model": "all-MiniLM-L6-v2-int8"}, r"which comes with Keystone; expected the folder of"),
    ],
)
def test_a_backend_that_cannot_run_a_set_of_vectors_is_refused(
    value: dict[str, str], message: str, tmp_path: Path
) -> None:
    model = str(write_checkpoint(tmp_path / "encoder", pooling="mean"))
    with pytest.raises(UserError, match=message):
        settle_vectors({"model": model, **value}, None, print, "--vectors")
    assert settle_vectors({"model": model, "backend": "vllm"}, "http://localhost:1/v1", print, "").url is None


@pytest.mark.parametrize(("pooling", "found"), [("max", "the pooling max"), ("mean", "the module Dense")])
def test_an_encoder_with_a_part_that_vllm_lacks_is_refused(pooling: str, found: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "encoder", pooling=pooling)
    if "Dense" in found:
        modules = json.loads((folder / "modules.json").read_text())
        modules[2] |= {"path": "", "type": "sentence_transformers.models.Dense"}
        (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UserError, match=f"found {found}, expected"):
        EngineEncoder(read_checkpoint(str(folder)))


@pytest.mark.parametrize(
    ("name", "config", "found"),
    [
        ("any", {"id2label": {"0": "no", "1": "yes"}}, "2 labels, expected one, which vLLM scores"),
        ("monot5", {"architectures": ["T5ForConditionalGeneration"]}, "T5ForConditionalGeneration, expected a classif"),
        ("bge-reranker-v2-gemma", {"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM, expected a classifier"),
        ("any", {"architectures": ["BertModel"]}, "BertModel, expected a reranker"),
        ("colbert", {"architectures": ["HF_ColBERT"]}, "a model of late interaction, expected a classifier"),
    ],
)
def test_a_reranker_that_vllm_cannot_run_is_refused(
    name: str, config: dict[str, Any], found: str, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / name, head="labels", **config)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())
    vocabulary["model"]["vocab"] |= {"▁false": 1000, "▁true": 1001, "Yes": 1002}
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    with pytest.raises(UserError, match=f"found {found}"):
        open_pair_scorer(str(folder), "vllm")


def test_settings_without_a_backend_are_written_as_before_and_only_a_model_has_one() -> None:
    assert "backend" not in Embedding("mine").as_json()
    assert "backend" not in RerankSettings(method="model", model="mine").model_dump()
    with pytest.raises(ValueError, match=r"backend: found 'vllm' with the method 'listwise', expected 'model'"):
        RerankSettings(method="listwise", backend="vllm")
