"""Late interaction: MaxSim as PyTorch computes it, by each layout of checkpoints, and the heads of BGE-M3."""

import json
import shutil
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from keystone.generation.rerank.settings import RerankSettings
from keystone.indexing.encoders.checkpoint import read_checkpoint
from keystone.indexing.encoders.dense import Encoder
from keystone.indexing.encoders.late import LateEncoder, compute_maxsim, is_late, open_late_encoder
from keystone.indexing.encoders.pairs import READING, list_reading, open_pair_scorer
from keystone.indexing.encoders.sparse import M3_FACTOR, open_sparse_encoder
from keystone.indexing.encoders.weights import read_pickled_layer
from keystone.indexing.errors import UserError
from keystone.retrieval.late import LateSystem
from tests.support import programs
from tests.support.models.checkpoints import WIDTH, write_checkpoint
from tests.support.models.late import DIMENSION, MARKERS, write_pylate, write_stanford
from tests.support.places import ROOT
from tests.support.runs.rerankings import make_candidates, rerank
from tests.support.servers.vllm import PYTHON, needs_vllm

pytestmark = pytest.mark.slow

QUERY = "what causes coral?"
PASSAGES = ["warm water, makes corals expel algae.", "the market fell", "a, b; c!", "w" * 99, "abc " * 9]
SAID = {
    "query_length": 24,
    "document_length": 40,
    "expands": True,
    "attends": False,
    "skipped": list(string.punctuation),
}


def ask(jobs: list[Any]) -> list[Any]:
    needs_vllm()
    done = programs.run(
        [PYTHON, ROOT / "tests/support/models/late_reference.py"],
        input=json.dumps(jobs), capture_output=True, text=True, check=True, seconds=300,
    )  # fmt: skip
    return list(json.loads(done.stdout))


def test_maxsim_is_what_pytorch_computes_by_each_layout(tmp_path: Path) -> None:
    unused = {"query_prefix": "[unused0]", "document_prefix": "[unused1]"}
    cases = [
        (write_pylate(tmp_path / "pylate"), SAID | MARKERS),
        (write_pylate(tmp_path / "attends", attend_to_expansion_tokens=True), SAID | MARKERS | {"attends": True}),
        (write_pylate(tmp_path / "bare", do_query_expansion=False), SAID | MARKERS | {"expands": False}),
        (write_pylate(tmp_path / "all", skiplist_words=[]), SAID | MARKERS | {"skipped": []}),
        (write_stanford(tmp_path / "stanford"), SAID | unused),
    ]
    jobs = [{"folder": str(folder), "query": QUERY, "passages": PASSAGES, "said": said} for folder, said in cases]
    seen = []
    for (folder, _), expected in zip(cases, ask(jobs), strict=True):
        found = open_pair_scorer(str(folder))(QUERY, PASSAGES, 2)
        assert found == pytest.approx(expected, abs=1e-4), folder.name
        seen.append(tuple(np.round(found, 3)))
    assert len(set(seen[:4])) == 4  # each setting counts
    assert seen[4] == seen[0]  # the same weights in the other layout


def test_each_head_of_bge_m3_computes_what_pytorch_computes(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m3", "xlm-roberta", pooling="cls")
    dense = Encoder(read_checkpoint(str(folder))).embed(PASSAGES)
    (expected,) = ask([{"folder": str(folder), "query": QUERY, "passages": PASSAGES, "heads": True}])
    assert open_pair_scorer(str(folder))(QUERY, PASSAGES, 1) == pytest.approx(expected["late"], abs=2e-3)
    for (entries, weights), own in zip(
        open_sparse_encoder(str(folder)).encode_documents(PASSAGES), expected["sparse"], strict=True
    ):
        assert entries.tolist() == sorted(map(int, own))
        assert weights / M3_FACTOR == pytest.approx([own[str(entry)] for entry in entries], abs=1e-4)
    assert (Encoder(read_checkpoint(str(folder))).embed(PASSAGES) == dense).all()


def test_a_passage_does_not_depend_on_the_others_or_on_threads(tmp_path: Path) -> None:
    encoder = open_late_encoder(str(write_pylate(tmp_path / "late")))
    alone = [encoder.encode_passages([text])[0] for text in PASSAGES]
    assert all((one == own).all() for one, own in zip(encoder.encode_passages(PASSAGES, 3), alone, strict=True))
    assert encoder.encode_query(QUERY).shape == (24, DIMENSION)
    assert np.linalg.norm(alone[0], axis=1) == pytest.approx(1, abs=1e-5)


def test_prompts_stand_before_texts_and_may_hold_the_markers(tmp_path: Path) -> None:
    plain = open_late_encoder(str(write_pylate(tmp_path / "plain")))
    prompts = {"query": "q: ", "document": "d: "}
    beside = str(write_pylate(tmp_path / "beside", prompts=prompts))
    marked = {"query": "[Q] q: ", "corpus": "[D] d: ", "document": ""}
    for folder in (
        beside,
        str(write_pylate(tmp_path / "twice", prompts=marked)),
        str(write_pylate(tmp_path / "within", prompts=marked, query_prefix=None, document_prefix=None)),
    ):
        encoder = open_late_encoder(folder)
        assert np.array_equal(encoder.encode_query("coral"), plain.encode_query("q: coral"))
        assert np.array_equal(encoder.encode_passages(["algae"])[0], plain.encode_passages(["d: algae"])[0])
    assert np.array_equal(open_late_encoder(beside, None, False).encode_query("coral"), plain.encode_query("coral"))


def test_the_layout_of_sentence_transformers_names_lengths_and_fillers_or_has_none(tmp_path: Path) -> None:
    folder = write_pylate(tmp_path / "late")
    plain = open_late_encoder(str(folder))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "MultiVectorEncoder"}))
    filled = {"query_expansion": {"strategy": "fixed", "length": 30, "attend": False, "token": "[MASK]"}}
    kept = filled["query_expansion"] | {"length": 32}
    cases: list[tuple[dict[str, Any], int, int, str]] = [
        ({}, 7, 64, " query_length=64 document_length=64 do_query_expansion=False"),
        (filled, 30, 64, " query_length=30 document_length=64"),
        (filled | {"document_length": 20}, 30, 20, " query_length=30"),
        ({"query_expansion": kept, "query_length": 48, "document_length": 20}, 32, 20, " query_length=32"),
        ({"query_expansion": kept, "document_length": 20}, 32, 20, ""),
        ({"query_length": 5, "document_length": 20}, 5, 20, ""),
    ]
    for said, query, passage, read in cases:
        (folder / "sentence_bert_config.json").write_text(json.dumps(said))
        checkpoint = read_checkpoint(str(folder))
        encoder = LateEncoder(checkpoint)
        assert len(encoder.encode_query("coral")) == query, said
        assert len(encoder.encode_passages(["w" * 99])[0]) == passage, said
        assert list_reading(checkpoint) == [READING, *([read] if read else [])], said
        assert LateSystem(model=str(folder), within="").identify() == checkpoint.compute_digest() + read
        assert encoder.reading == " with prompts"
    assert len(plain.encode_query("coral")) == 24


@given(st.integers(1, 5), st.integers(0, 6), st.integers(0, 2**32 - 1))
def test_maxsim_is_the_sum_of_the_greatest_products(queries: int, tokens: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    query, passage = (random.normal(size=(size, 4)).astype(np.float32) for size in (queries, tokens))
    expected = sum(max((float(one @ other) for other in passage), default=0.0) for one in query)
    assert compute_maxsim(query, passage) == pytest.approx(expected, abs=1e-4)


def test_a_run_reranks_by_late_interaction(tmp_path: Path) -> None:
    folder = write_pylate(tmp_path / "late")
    (found,) = rerank(
        {"method": "model", "model": str(folder)}, tmp_path, [make_candidates("abc", [["xyz"], ["abc"], ["b"]])]
    )
    scores = open_pair_scorer(str(folder))("abc", ["xyz", "abc", "b"], 1)
    assert found.order == sorted(range(3), key=lambda place: -scores[place])
    assert RerankSettings.model_validate({"method": "model", "model": str(folder)}).model == str(folder)


def damage_projection(folder: Path, weights: Any) -> None:
    save_file({"linear.weight": np.asarray(weights, np.float32)}, folder / "1_Dense" / "model.safetensors")


DAMAGE = {
    "no weights": (lambda folder: (folder / "1_Dense/model.safetensors").unlink(), r"1_Dense/model.safetensors"),
    "width": (lambda folder: damage_projection(folder, np.zeros((3, 5))), rf"projection of 5 .* expected of {WIDTH}"),
    "NaN": (lambda folder: damage_projection(folder, np.full((3, WIDTH), np.nan)), r"not a matrix of finite numbers"),
    "marker": (lambda folder: write_pylate(folder, query_prefix="[?] "), r"marker '\[\?\] ', which is not a token"),
    "length": (lambda folder: write_pylate(folder, document_length=10_000), r"document_length: 10000"),
    "no network": (lambda folder: (folder / "model.safetensors").unlink(), r"PyTorch: pip install torch"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_an_error_that_names_the_file(tmp_path: Path, damage: Any, message: str) -> None:
    damage(folder := write_pylate(tmp_path / "late"))
    with pytest.raises(UserError, match=message) as caught:
        open_late_encoder(str(folder))
    assert str(folder) in str(caught.value) or "pip install" in str(caught.value)


def test_a_file_of_pytorch_may_hold_nothing_but_arrays(tmp_path: Path) -> None:
    import pickle
    import zipfile

    with zipfile.ZipFile(tmp_path / "bad.pt", "w") as archive:
        archive.writestr("bad/data.pkl", pickle.dumps({"weight": shutil.rmtree}))
    with pytest.raises(UserError, match=r"bad\.pt: could not be read .* found shutil\.rmtree"):
        read_pickled_layer(tmp_path / "bad.pt")
    (tmp_path / "worse.pt").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"worse\.pt: could not be read"):
        read_pickled_layer(tmp_path / "worse.pt")
    with pytest.raises(UserError, match=r"none\.pt: is missing"):
        read_pickled_layer(tmp_path / "none.pt")


def test_only_checkpoints_of_late_interaction_are_taken_for_it(tmp_path: Path) -> None:
    assert is_late(read_checkpoint(str(write_pylate(tmp_path / "late"))))
    assert is_late(read_checkpoint(str(write_stanford(tmp_path / "stanford"))))
    assert not is_late(read_checkpoint(str(write_checkpoint(tmp_path / "pairs", head="labels"))))
