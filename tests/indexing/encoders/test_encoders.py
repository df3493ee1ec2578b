"""Encoders, learned sparse encoders and cross-encoders of checkpoints: equal to transformers, whatever the batch."""

import json
import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from keystone.indexing.builds.settings import settle_vectors
from keystone.indexing.encoders import checkpoint as checkpoint_files
from keystone.indexing.encoders import pairs
from keystone.indexing.encoders.checkpoint import E5, POOLING_MODES, Module, find_checkpoint, read_checkpoint
from keystone.indexing.encoders.dense import Encoder, open_encoder
from keystone.indexing.encoders.graph import round_weights
from keystone.indexing.encoders.network import open_torch
from keystone.indexing.encoders.pairs import find_template, open_pair_scorer
from keystone.indexing.encoders.sparse import open_sparse_encoder, quantise
from keystone.indexing.encoders.weights import measure_footprint
from keystone.indexing.errors import UserError
from keystone.indexing.impacts import open_impact_encoder, settle_impacts
from keystone.indexing.index import ImpactSet
from keystone.indexing.types import LOCAL_INT8, MINILM, Embedding
from keystone.indexing.vectors.embed import load_embedder, settle_embedding
from tests.support import programs
from tests.support.models.checkpoints import VOCABULARY, find_splade, write_checkpoint
from tests.support.models.jars import BGE_SMALL, E5_SMALL, find_jar_model, write_bge_weights
from tests.support.places import ROOT
from tests.support.servers.vllm import PYTHON, needs_vllm

pytestmark = pytest.mark.slow

TEXTS = ["what causes coral bleaching", "short", "the stock market fell 9 percent " * 4, "word " * 99]
PAIRS = [[TEXTS[0], text] for text in TEXTS]
KINDS = ("bert", "roberta", "xlm-roberta", "distilbert")
POOLED = ("mean", "cls", "max", "lasttoken")
CASES = [(kind, head) for kind in KINDS for head in ("mean", "words", "labels")] + [("bert", one) for one in POOLED[1:]]

QUESTION = "what causes coral bleaching"
ANSWER = "Coral bleaching happens when warm water makes corals expel the algae living in their tissues."
OTHER = "The stock market fell sharply on Monday after weak earnings."
PREFIX = "Represent this sentence for searching relevant passages: "


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Path]:
    """A checkpoint for each kind of network and each head or pooling."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return {
        (kind, head): write_checkpoint(folder / f"{kind}-{head}", kind, head)
        if head in ("words", "labels")
        else write_checkpoint(folder / f"{kind}-{head}", kind, pooling=head)
        for kind, head in CASES
    }


@pytest.fixture(scope="module")
def expected(checkpoints: Mapping[tuple[str, str], Path]) -> Mapping[tuple[str, str], Any]:
    """What transformers computes for each of them."""
    needs_vllm()
    jobs = [
        {"folder": str(folder), "head": head, "texts": PAIRS if head == "labels" else TEXTS}
        for (_, head), folder in checkpoints.items()
    ]
    done = programs.run(
        [PYTHON, ROOT / "tests/support/models/reference.py"],
        input=json.dumps(jobs), capture_output=True, text=True, check=True, seconds=300,
    )  # fmt: skip
    return {case: np.array(found) for case, found in zip(checkpoints, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_a_network_computes_what_transformers_computes(
    kind: str, head: str, checkpoints: Mapping[tuple[str, str], Path], expected: Mapping[tuple[str, str], Any]
) -> None:
    name, wanted = str(checkpoints[kind, head]), expected[kind, head]
    if head == "labels":
        assert open_pair_scorer(name)(TEXTS[0], TEXTS, 1) == pytest.approx(wanted[:, 0], abs=1e-4)
    elif head == "words":
        found = np.zeros_like(wanted)
        for row, (entries, weights) in zip(found, open_sparse_encoder(name).encode_documents(TEXTS), strict=True):
            row[entries] = weights
        wanted[:, :5] = 0  # special tokens get no weight
        assert np.abs(found - wanted).max() < 1e-4
    else:
        found = Encoder(read_checkpoint(name)).embed(TEXTS)
        cosines = (found * wanted).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(wanted, axis=1)
        assert cosines.min() > 0.9999


@pytest.mark.parametrize("threads", [2, 5])
def test_what_is_computed_depends_on_neither_threads_nor_other_texts(
    threads: int, checkpoints: Mapping[tuple[str, str], Path]
) -> None:
    encoder = Encoder(read_checkpoint(str(checkpoints["bert", "mean"])))
    alone = np.concatenate([encoder.embed([text]) for text in TEXTS])
    assert np.array_equal(encoder.embed(TEXTS * 9, threads), np.tile(alone, (9, 1)))
    sparse = open_sparse_encoder(str(checkpoints["bert", "words"]))
    for found, text in zip(sparse.encode_documents(TEXTS * 3, threads), TEXTS * 3, strict=True):
        ((entries, weights),) = sparse.encode_documents([text])
        assert (found[0].tolist(), found[1].tolist()) == (entries.tolist(), weights.tolist())
    scorer = open_pair_scorer(str(checkpoints["bert", "labels"]))
    assert scorer(TEXTS[0], TEXTS * 3, threads).tolist() == np.tile(scorer(TEXTS[0], TEXTS, 1), 3).tolist()


def test_a_trained_splade_weighs_texts_as_its_reference_says() -> None:
    encoder = open_sparse_encoder(str(find_splade()))
    question, answer, other = encoder.encode_queries([QUESTION, ANSWER, OTHER])
    best = sorted(zip(question[1], question[0], strict=True), reverse=True)[:4]
    assert [encoder.vocabulary[entry] for _, entry in best] == ["coral", "b", "causes", "cause"]
    assert [float(weight) for weight, _ in best] == pytest.approx([2.5304, 2.2965, 2.0466, 1.8412], abs=1e-4)
    assert [len(entries) for entries, _ in (question, answer, other)] == [17, 73, 32]

    def multiply(one: Any, of: Any) -> Any:
        there = dict(zip(one[0].tolist(), of(one[1]).tolist(), strict=True))
        return sum(weight * there.get(entry, 0) for entry, weight in zip(question[0], of(question[1]), strict=True))

    assert multiply(answer, np.asarray) == pytest.approx(25.3991, abs=1e-3)
    assert multiply(other, np.asarray) == pytest.approx(0.2058, abs=1e-3)
    assert [multiply(answer, quantise), multiply(other, quantise)] == [66591, 564]


def test_a_trained_bge_embeds_as_its_reference_says(tmp_path: Path) -> None:
    """By its graph as ONNX, and by its weights, which Keystone's own graph computes."""
    checkpoint = read_checkpoint(str(find_jar_model(BGE_SMALL)))
    assert checkpoint.find_prefixes() == (PREFIX, "")
    texts = [PREFIX + QUESTION, ANSWER, OTHER, QUESTION]
    found = Encoder(checkpoint).embed(texts)
    assert multiply_units(found[:1], found[1:3]) == pytest.approx(np.array([[0.86259, 0.42639]]), abs=1e-3)
    assert multiply_units(found[3:], found[1:3]) == pytest.approx(np.array([[0.88031, 0.45107]]), abs=1e-3)
    assert found[3, :4] == pytest.approx(np.array([0.00159, 0.01046, -0.00015, 0.00773]), abs=5e-4)
    own = Encoder(read_checkpoint(str(write_bge_weights(tmp_path / BGE_SMALL.name)))).embed(texts)
    assert np.diag(multiply_units(own, found)).min() > 0.9999
    mean = replace(checkpoint, modules=(Module("Pooling", checkpoint.folder, {"pooling_mode": "mean"}),))
    pooled = Encoder(mean).embed(texts[1:])
    assert multiply_units(pooled[2:], pooled[:2]) == pytest.approx(np.array([[0.86267, 0.40293]]), abs=1e-3)


def test_a_trained_e5_of_8_bits_embeds_as_its_reference_says() -> None:
    checkpoint = read_checkpoint(str(find_jar_model(E5_SMALL)))
    assert checkpoint.find_prefixes() == ("query: ", "passage: ")
    texts = [f"query: {QUESTION}", f"passage: {ANSWER}", f"passage: {OTHER}"]
    found = Encoder(checkpoint).embed(texts)
    assert multiply_units(found[:1], found[1:]) == pytest.approx(np.array([[0.909, 0.70887]]), abs=1e-2)
    assert np.array_equal(found[1], Encoder(checkpoint).embed([texts[1]])[0]), "a vector depends on no other text"


def multiply_units(one: Any, other: Any) -> Any:
    """The cosines of rows: float32[rows of one, rows of other]."""
    units = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (one, other)]
    return units[0] @ units[1].T


def test_the_embedded_model_is_that_of_the_hub() -> None:
    assert load_embedder(MINILM).dimension == 384
    assert read_checkpoint(MINILM.model).find_prefixes() == ("", "")


def test_the_embedded_model_in_integers_makes_nearly_the_same_vectors() -> None:
    texts = ["Honey bees live in colonies.", "A volcano erupts lava. " * 20, "Wasps hunt insects.", "bees"]
    single, quick = load_embedder(MINILM).embed(texts), load_embedder(Embedding(LOCAL_INT8)).embed(texts, threads=2)
    assert 0.98 < np.diag(multiply_units(single, quick)).min() < 0.9999
    alone = [load_embedder(Embedding(LOCAL_INT8)).embed([text])[0] for text in texts]
    assert np.array_equal(quick, alone), "a vector depends on no other text"


def test_weights_in_integers_leave_room_for_the_sum_of_two_products() -> None:
    weights = np.random.default_rng(1).normal(size=(5, 7)).astype(np.float32)
    integers, scales = round_weights(weights)
    assert 2 * 255 * int(np.abs(integers).max()) < 2**15
    assert np.all(np.abs(integers.T * scales[:, None] - weights) <= scales[:, None] * 0.501)


def test_the_embedded_models_need_no_digest() -> None:
    assert settle_embedding(Embedding(LOCAL_INT8), (), pytest.fail) == Embedding(LOCAL_INT8)


def write_router(folder: Path) -> Path:
    """An inference-free encoder: a table weighs the tokens of queries, a masked language model those of documents."""
    from safetensors.numpy import save_file

    write_checkpoint(folder / "document_0_MLMTransformer", head="words")
    (folder / "document_1_SpladePooling").mkdir()
    pooling = {"pooling_strategy": "max", "activation_function": "log1p_relu"}
    (folder / "document_1_SpladePooling/config.json").write_text(json.dumps(pooling))
    (folder / "query_0_SparseStaticEmbedding").mkdir()
    table = np.arange(len(VOCABULARY), dtype=np.float32) / 10
    save_file({"weight": table}, folder / "query_0_SparseStaticEmbedding/model.safetensors")
    sides = {"query": ["query_0_SparseStaticEmbedding"]}
    sides["document"] = ["document_0_MLMTransformer", "document_1_SpladePooling"]
    types = {name: f"sentence_transformers.{name.split('_')[2]}" for own in sides.values() for name in own}
    (folder / "router_config.json").write_text(json.dumps({"types": types, "structure": sides}))
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}]
    (folder / "modules.json").write_text(json.dumps(listed))
    return folder


def test_an_inference_free_encoder_weighs_each_token_of_a_query_once_by_its_table(tmp_path: Path) -> None:
    folder = write_router(tmp_path / "router")
    encoder = open_sparse_encoder(str(folder))
    ((entries, weights), none) = encoder.encode_queries(["a b a", ""])
    assert [encoder.vocabulary[entry] for entry in entries] == ["a", "b"]
    assert weights.tolist() == pytest.approx([VOCABULARY.index(letter) / 10 for letter in "ab"])
    assert len(none[0]) == 0
    plain = open_sparse_encoder(str(folder / "document_0_MLMTransformer"))
    for (_, twice), (_, once) in zip(encoder.encode_documents(TEXTS), plain.encode_documents(TEXTS), strict=True):
        assert twice == pytest.approx(np.log1p(once), abs=1e-6)
    pooling = write_router(tmp_path / "sum") / "document_1_SpladePooling/config.json"
    pooling.write_text(json.dumps({"pooling_strategy": "sum"}))
    with pytest.raises(UserError, match=r"found pooling_strategy: 'sum', expected max"):
        open_sparse_encoder(str(tmp_path / "sum"))


def test_texts_stand_after_the_prompts_of_a_sparse_encoder_but_not_in_an_older_set(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", head="words")
    plain = open_sparse_encoder(str(folder))
    prompts = {"query": "q: ", "document": "d: "}
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    made = settle_impacts(str(folder))
    assert (made.as_json()["prompted"], made.made_by != made.weights) == (True, True)
    older = ImpactSet(made.model, made.weights)
    assert (older.as_json(), older.made_by) == ({"model": made.model, "weights": made.weights}, made.weights)
    for one, before in ((made, ("q: ", "d: ")), (older, ("", ""))):
        encoder = open_impact_encoder(one)
        for encode, prompt in ((encoder.encode_queries, before[0]), (encoder.encode_documents, before[1])):
            ((entries, weights),) = plain.encode_documents([f"{prompt}coral"])
            ((found, own),) = encode(["coral"])
            assert np.array_equal(found, entries)
            assert np.array_equal(own, weights)


def test_pooling_is_read_in_the_old_and_in_the_new_form(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", pooling="mean")
    found = {}
    for mode in POOLING_MODES:
        (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": mode}))
        new = Encoder(read_checkpoint(str(folder))).embed(TEXTS)
        old = {f"pooling_mode_{mode if mode in ('lasttoken', 'mean_sqrt_len_tokens') else mode + '_tokens'}": True}
        old = {"pooling_mode_cls_token": True} if mode == "cls" else old
        (folder / "1_Pooling/config.json").write_text(json.dumps(old))
        found[mode] = Encoder(read_checkpoint(str(folder))).embed(TEXTS)
        assert np.array_equal(new, found[mode])
    assert np.array_equal(found["mean"], found["mean_sqrt_len_tokens"])  # their directions are equal
    assert len({one.tobytes() for one in found.values()}) == len(POOLING_MODES) - 1
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": ["cls", "mean"]}))
    assert Encoder(read_checkpoint(str(folder))).dimension == 64


def test_dimensions_keep_the_first_numbers_and_no_more_than_there_are(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(str(write_checkpoint(tmp_path / "model")))
    whole, half = Encoder(checkpoint).embed(TEXTS), Encoder(checkpoint, dimensions=16).embed(TEXTS)
    expected = whole[:, :16] / np.linalg.norm(whole[:, :16], axis=1, keepdims=True)
    assert half / np.linalg.norm(half, axis=1, keepdims=True) == pytest.approx(expected, abs=2e-3)
    (checkpoint.folder / "config_sentence_transformers.json").write_text(json.dumps({"truncate_dim": 16}))
    for given, dimensions in ((None, 16), (8, 8)):
        said = Embedding(str(checkpoint.folder), dimensions=given)
        assert settle_embedding(said, ["query_prefix"], pytest.fail).dimensions == dimensions
    with pytest.raises(UserError, match=r"found vectors of 32 numbers, expected the 33 that the settings name"):
        Encoder(checkpoint, dimensions=33)
    (checkpoint.folder / "config_sentence_transformers.json").write_text(json.dumps({"truncate_dim": 33}))
    assert Encoder(read_checkpoint(str(checkpoint.folder)), dimensions=33).dimension == 32


@pytest.mark.parametrize(
    ("name", "prompts", "prefixes"),
    [
        ("bge-small-en-v1.5", None, ("Represent this sentence for searching relevant passages: ", "")),
        ("e5-base-v2", None, E5),
        ("e5-base-v2", {"query": "", "document": ""}, E5),
        ("mine", {"query": "Q ", "passage": "P "}, ("Q ", "P ")),
        ("mine", {"query": "", "document": "", "corpus": "C "}, ("", "C ")),
        ("e5-base-v2", {"query": "ask ", "document": ""}, ("ask ", "")),
        ("mine", {"query": "", "document": ""}, None),
        ("stella_en_1.5B_v5", {"s2p_query": "Instruct: find\nQuery: ", "s2s_query": "Instruct: ..."}, None),
        ("mine", None, None),
    ],
)
def test_prefixes_come_from_the_files_or_are_known_or_a_message_says_that_nobody_knows_them(
    name: str, prompts: Mapping[str, str] | None, prefixes: tuple[str, str] | None, tmp_path: Path
) -> None:
    folder, notes = write_checkpoint(tmp_path / name, pooling="mean", prompts=prompts), list[str]()
    made = settle_embedding(Embedding(str(folder)), (), notes.append)
    query, passage = prefixes or ("", "")
    assert (made.query_prefix, made.passage_prefix) == (query, passage)
    assert (made.model, made.label) == (str(folder.resolve()), name)
    assert bool(notes) == (prefixes is None)
    assert all(("the prompts s2p_query, s2s_query)" in note) == ("stella" in name) for note in notes)
    given = settle_embedding(Embedding(str(folder), query_prefix="mine: "), ["query_prefix"], pytest.fail)
    assert (given.query_prefix, given.passage_prefix) == ("mine: ", passage)
    given = settle_vectors({"model": str(folder), "passage_prefix": ""}, None, pytest.fail, "")
    assert (given.query_prefix, given.passage_prefix) == (query, "")


@pytest.mark.parametrize(
    ("model", "named", "options"),
    [
        ("intfloat/e5-base-v2", (), "--query-prefix 'query: ' and --passage-prefix 'passage: '"),
        ("BAAI/bge-small-en-v1.5", (), f"--query-prefix {PREFIX!r}"),
        ("intfloat/e5-base-v2", ["query_prefix"], None),
        ("BAAI/bge-m3", (), None),
        ("letters", (), None),
    ],
)
def test_prefixes_that_a_model_at_a_url_is_known_to_need_are_told_unless_one_is_given(
    model: str, named: Collection[str], options: str | None
) -> None:
    notes, given = list[str](), Embedding(model, "http://localhost:1/v1")
    assert settle_embedding(given, named, notes.append) == given
    expected = f"{model}: nothing stands before its texts at a URL; unless the server adds what the model needs, give "
    assert notes == ([expected + options] if options else [])
    notes.clear()
    settle_vectors({"model": model, "url": given.url, **dict.fromkeys(named, "")}, None, notes.append, "")
    for option, key in (("--query-prefix", "the set's query_prefix"), ("--passage-prefix", "passage_prefix")):
        options = options and options.replace(option, key)
    assert notes == ([expected + options] if options else [])


def test_a_changed_checkpoint_is_refused(tmp_path: Path) -> None:
    made = settle_embedding(Embedding(str(write_checkpoint(tmp_path / "model"))), (), lambda _: None)
    open_encoder(made)
    write_checkpoint(tmp_path / "model", seed=1)
    with pytest.raises(UserError, match=r"expected \w{16}: its files have changed since the index was built"):
        open_encoder(made)


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    """Write the small files that each checkpoint has, and these."""
    for name, text in {"config.json": "{}", "tokenizer.json": "{}", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


ROUTER = {"router_config.json": "{}"}
DENSE = {
    "modules.json": '[{"path": "", "type": "models.Transformer"}, {"path": "2_Dense", "type": "models.Dense"}]',
    "2_Dense/config.json": "{}",
}


@pytest.mark.parametrize(
    ("weights", "files"),
    [
        (["model.safetensors"], {}),
        (["model-1.safetensors", "model-2.safetensors"], {}),
        (["pytorch_model.bin"], {}),
        (["onnx/model.onnx", "onnx/model.onnx_data"], {}),
        (["document_0_MLMTransformer/model.safetensors", "query_0_Static/model.safetensors"], ROUTER),
        (["model.safetensors", "2_Dense/model.safetensors"], DENSE),
    ],
)
def test_other_weights_have_another_digest_wherever_they_are(
    weights: Sequence[str], files: Mapping[str, str], tmp_path: Path
) -> None:
    folder = write_files(tmp_path / "model", {**files, **dict.fromkeys(weights, "old")})
    found = {read_checkpoint(str(folder)).compute_digest()}
    for name in weights:
        (folder / name).write_text("trained")
        found.add(read_checkpoint(str(folder)).compute_digest())
    assert len(found) == 1 + len(weights)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "onnx/model.onnx_data", "checkpoint-500/model.safetensors"])
def test_weights_that_no_network_is_read_from_change_no_digest(name: str, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "model", {"model.safetensors": "", "onnx/model.onnx": "", name: ""})
    before = read_checkpoint(str(folder)).compute_digest()
    (folder / name).write_text("other")
    assert read_checkpoint(str(folder)).compute_digest() == before


@pytest.mark.parametrize(
    ("kind", "has_torch", "graphs", "fetched"),
    [
        ("mpnet", False, ["onnx/model.onnx", "onnx/model.onnx_data"], ["onnx/model.onnx", "onnx/model.onnx_data"]),
        ("mpnet", False, [], ["model.safetensors"]),
        ("mpnet", True, ["onnx/model.onnx"], ["model.safetensors"]),
        ("bert", False, ["onnx/model.onnx"], ["model.safetensors"]),
    ],
)
def test_a_network_that_only_its_graph_runs_here_is_fetched_as_a_graph(
    kind: str, has_torch: bool, graphs: Sequence[str], fetched: Sequence[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A second fetch, after PyTorch has come, takes no other files, so that the digest stays."""
    from safetensors.numpy import save_file

    weights = ["model.safetensors", "pytorch_model.bin", "2_Dense/model.safetensors", "onnx/model_int8.onnx", *graphs]
    files = {name: "x" * (100 + place) for place, name in enumerate(weights)}
    repository = write_files(tmp_path / "repository", files | {"config.json": json.dumps({"model_type": kind})})
    save_file({"weight": np.zeros(3, np.float32)}, repository / "model.safetensors")
    names = [path.relative_to(repository).as_posix() for path in repository.rglob("*") if path.is_file()]
    sizes = [SimpleNamespace(rfilename=name, size=(repository / name).stat().st_size) for name in names]

    def fetch(_: str, allow_patterns: Sequence[str] = (), local_files_only: bool = False) -> str:
        if local_files_only:
            raise OSError("nothing is here")
        for name in names:
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                (tmp_path / "cache" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(repository / name, tmp_path / "cache" / name)
        return str(tmp_path / "cache")

    told = SimpleNamespace(siblings=sizes, config={"model_type": kind})
    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: told)
    monkeypatch.setattr(checkpoint_files, "find_spec", lambda _: object() if has_torch else None)
    foretold = measure_footprint("embeddings", "someone/model").disk
    for _ in range(2):
        folder = find_checkpoint("someone/model")
        here = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert here == {"config.json", "tokenizer.json", "2_Dense/model.safetensors", *fetched}
        assert foretold == sum((folder / name).stat().st_size for name in here)
        assert measure_footprint("embeddings", str(folder)).disk == foretold
        monkeypatch.setattr(checkpoint_files, "find_spec", lambda _: object())


def break_file(name: str, content: bytes | None) -> Any:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)

    return change


def write_config(**values: Any) -> Any:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | values))

    return change


def write_modules(*kinds: str) -> Any:
    listed = [{"path": "", "type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    return break_file("modules.json", json.dumps(listed).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (break_file("config.json", None), r"config\.json: is missing, expected a checkpoint with this file"),
        (break_file("config.json", b"[1]"), r"config\.json: found list, expected an object with settings"),
        (break_file("config_sentence_transformers.json", b'{"prompts": [1]}'), r"found prompts of another form"),
        (break_file("config_sentence_transformers.json", b'{"truncate_dim": "9"}'), r"found truncate_dim: '9', exp"),
        (break_file("config_sentence_transformers.json", b'{"truncate_dim": -1}'), r"s\.json: found truncate_dim: -1"),
        (write_modules("Transformer", "Dense"), r"found no weights 'linear\.weight' in model"),
        (break_file("config.json", b"{"), r"config\.json: could not be read as JSON"),
        (break_file("tokenizer.json", None), r"found no tokenizer\.json"),
        (break_file("tokenizer.json", b"{}"), r"tokenizer\.json: could not be read as a tokenizer"),
        (break_file("model.safetensors", b"short"), r"model\.safetensors: could not be read as weights"),
        (write_config(num_hidden_layers=3), r"found no weights 'encoder\.layer\.2\.output\.dense\.weight'"),
        (write_config(num_hidden_layers="two"), r"num_hidden_layers: 'two' in config\.json, expected a number"),
        (write_config(hidden_act="mish"), r"found hidden_act: 'mish', expected gelu"),
        (write_config(position_embedding_type="relative_key"), r"position_embedding_type: 'relative_key'"),
        (write_config(model_type="other"), r"pip install torch transformers"),
        (
            write_modules("Transformer", "Whitening"),
            r"found the module Whitening, expected Pooling, Dense or Normalize",
        ),
        (write_modules("Pooling"), r"found Pooling as the first module, expected Transformer or Router"),
        (break_file("modules.json", b"[1]"), r"modules\.json: expected a list of modules"),
        (break_file("1_Pooling/config.json", b'{"pooling_mode": "best"}'), r"found the pooling 'best', expected cls"),
        (
            break_file("config_sentence_transformers.json", b'{"similarity_fn_name": "euclidean"}'),
            r"found the similarity euclidean, expected cosine or dot",
        ),
    ],
)
def test_a_checkpoint_that_cannot_serve_is_refused_by_file(change: Any, message: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    change(folder)
    with pytest.raises((UserError, ImportError), match=message):
        Encoder(read_checkpoint(str(folder)))


@pytest.mark.parametrize("name", ["nowhere", "./nowhere", "/nowhere/model", "a b/c"])
def test_a_model_that_is_nowhere_is_refused(name: str) -> None:
    with pytest.raises(
        UserError, match=r"found no such folder, expected all-MiniLM-L6-v2, all-MiniLM-L6-v2-int8, the folder"
    ):
        find_checkpoint(name)


def test_a_function_that_made_an_index_is_asked_for_again() -> None:
    with pytest.raises(UserError, match=r"is a function of the program .* open_index\(folder, encoder=\.\.\.\)"):
        find_checkpoint("encode.<locals>.<lambda> 1a2b3c4d")


def test_a_model_without_the_head_that_is_needed_is_refused(tmp_path: Path) -> None:
    name = str(write_checkpoint(tmp_path / "model"))
    with pytest.raises(UserError, match=r"found BertModel, expected a masked language model"):
        open_sparse_encoder(name)
    with pytest.raises(UserError, match=r"found BertModel, expected a reranker"):
        open_pair_scorer(name)


@pytest.mark.parametrize(
    "name", ["Qwen3-Reranker-0.6B", "mxbai-rerank-base-v2", "bge-reranker-v2-gemma", "monot5-base"]
)
def test_a_reranker_that_answers_yes_or_no_has_its_template(name: str, tmp_path: Path) -> None:
    template = find_template(read_checkpoint(str(write_checkpoint(tmp_path / name))))
    assert template.before.format(query="what is this") != template.before
    assert "what is this" in template.before.format(query="what is this")


def write_byte_tokenizer(folder: Path, *words: str) -> dict[str, int]:
    """Write a tokenizer of bytes to a checkpoint, as Qwen has it, in which words are tokens; returns the vocabulary."""
    vocabulary = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                merges.append((word[: end - 1], word[end - 1]))
                vocabulary[word[:end]] = len(vocabulary)
    made = Tokenizer(models.BPE(vocabulary, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 2000}))
    return vocabulary


def test_the_tokens_of_a_passage_are_those_of_the_whole_text_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the references of such rerankers have them: ` Paris` is one token after `<Document>:`."""
    config: dict[str, Any] = {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 2000}
    folder, read = write_checkpoint(tmp_path / "Qwen3-Reranker-tiny", **config), list[list[int]]()
    vocabulary = write_byte_tokenizer(folder, "yes", "no", "ĠParis")

    def weigh(texts: Sequence[list[int]]) -> list[float]:
        read.extend(texts)
        return [0.0] * len(texts)

    monkeypatch.setattr(pairs, "_open_torch_weigher", lambda *_: (weigh, []))
    score = open_pair_scorer(str(folder))
    score("where?", ["Paris is", "x" * 3000], 1)
    tokenizer, template = Tokenizer.from_file(str(folder / "tokenizer.json")), pairs.TEMPLATES["qwen3-reranker"]
    whole = tokenizer.encode(template.before.format(query="where?") + "Paris is").ids
    assert read[0] == [*whole, *tokenizer.encode(template.after).ids]
    assert vocabulary["ĠParis"] in read[0]
    assert len(read[1]) == 2000
    assert read[1][-20:] == read[0][-20:]
    with pytest.raises(UserError, match=r"found a query of 3\d{3} tokens for .*, expected fewer: shorten it"):
        score("x" * 3000, ["Paris"], 1)
    assert pairs.list_reading(read_checkpoint(str(folder))) == [pairs.READING]
    assert pairs.list_reading(read_checkpoint(str(write_checkpoint(tmp_path / "pairs", head="labels")))) == []


def test_a_version_of_transformers_that_ignores_is_causal_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = read_checkpoint(str(write_checkpoint(tmp_path / "model", model_type="qwen2", is_causal=False)))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__="4.57.3"))
    with pytest.raises(UserError, match=r"which transformers 4\.57\.3 ignores, expected transformers 5\.2 or newer"):
        open_torch(checkpoint, "states")


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    path = write_checkpoint(tmp_path / "model") / "model.safetensors"
    weights = load_file(path)
    weights["embeddings.LayerNorm.bias"] = np.full_like(weights["embeddings.LayerNorm.bias"], np.nan)
    save_file(weights, path)
    with pytest.raises(UserError, match=r"found weights that are not finite, expected numbers"):
        Encoder(read_checkpoint(str(path.parent)))


def test_onnx_runtime_sends_no_telemetry(tmp_path: Path) -> None:
    """It would keep a file of events in the user's cache, and send them from there."""
    write_checkpoint(tmp_path / "model", pooling="mean")
    code = "import sys; from keystone.indexing.encoders.checkpoint import read_checkpoint as read; "
    code += "from keystone.indexing.encoders.dense import Encoder; Encoder(read(sys.argv[1])).embed(['bees'])"
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": "", "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", code, str(tmp_path / "model")]
    programs.run(command, env=home, check=True, capture_output=True, text=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
