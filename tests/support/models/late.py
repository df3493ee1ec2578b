"""Small checkpoints of late interaction with random weights, by PyLate's and ColBERT's layouts, and one of MiniLM."""

import json
import shutil
import string
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from keystone.indexing.io.published import MINILM, find_published
from tests.support.models.checkpoints import WIDTH, write_checkpoint

DIMENSION = 12
MARKERS = {"query_prefix": "[Q] ", "document_prefix": "[D] "}


def write_pylate(folder: Path, dimension: int = DIMENSION, **settings: Any) -> Path:
    """Write a checkpoint in PyLate's layout; `settings` go into `config_sentence_transformers.json`."""
    write_checkpoint(folder)
    _add_tokens(folder, [*MARKERS.values(), *string.punctuation])
    _register(folder, [*MARKERS.values()])
    said: dict[str, Any] = {
        "query_length": 24,
        "document_length": 40,
        "do_query_expansion": True,
        "attend_to_expansion_tokens": False,
    }
    said |= MARKERS | {"skiplist_words": list(string.punctuation)}
    return _describe(folder, _draw(dimension, WIDTH), said | settings)


def write_minilm(folder: Path) -> Path:
    """Write MiniLM as a checkpoint of late interaction, whose vectors are turned and cut to 128 numbers."""
    folder.mkdir(parents=True)
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copy(find_published(MINILM) / name, folder)
    sizes = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 12}
    sizes |= {"max_position_embeddings": 512, "vocab_size": 30_522, "type_vocab_size": 2, "pad_token_id": 0}
    kind = {"architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12}
    (folder / "config.json").write_text(json.dumps(kind | sizes))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512, "pad_token": "[PAD]"}))
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(384, 384)))[0][:128].astype(np.float32)
    said = {"query_length": 32, "document_length": 64, "query_prefix": "", "document_prefix": ""}
    return _describe(folder, turned, said | {"do_query_expansion": False, "skiplist_words": []})


def _describe(folder: Path, projection: np.ndarray[Any, Any], said: dict[str, Any]) -> Path:
    """Add a projection and the files of PyLate to a checkpoint, whose window follows from `document_length`."""
    dense = folder / "1_Dense"
    dense.mkdir(exist_ok=True)
    save_file({"linear.weight": np.ascontiguousarray(projection)}, dense / "model.safetensors")
    sizes = {"in_features": projection.shape[1], "out_features": len(projection), "bias": False}
    (dense / "config.json").write_text(json.dumps(sizes | {"activation_function": "torch.nn.modules.linear.Identity"}))
    types = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
    listed = [{"idx": n, "name": str(n), "path": path, "type": type} for n, (path, type) in enumerate(types.items())]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": said["document_length"] - 1}))
    kind = {"model_type": "ColBERT", "similarity_fn_name": "MaxSim"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(kind | said))
    return folder


def write_stanford(folder: Path) -> Path:
    """Write a checkpoint in ColBERT's own layout, whose weights are those of `write_pylate`."""
    write_checkpoint(folder, architectures=["HF_ColBERT"])
    _add_tokens(folder, ["[unused0]", "[unused1]", *string.punctuation])
    weights = {f"bert.{name}": one for name, one in load_file(folder / "model.safetensors").items()}
    save_file(weights | {"linear.weight": _draw(DIMENSION, WIDTH)}, folder / "model.safetensors")
    said = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 24, "doc_maxlen": 40}
    said |= {"attend_to_mask_tokens": False, "mask_punctuation": True, "dim": DIMENSION}
    (folder / "artifact.metadata").write_text(json.dumps(said))
    return folder


def _draw(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(9).normal(0, 0.3, shape).astype(np.float32)


def _register(folder: Path, tokens: list[str]) -> None:
    """Let the tokenizer read these tokens of its vocabulary in a text, as PyLate does with markers."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    kind = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    tokenizer["added_tokens"] += [{"id": tokenizer["model"]["vocab"][one], "content": one, **kind} for one in tokens]
    path.write_text(json.dumps(tokenizer))


def _add_tokens(folder: Path, tokens: list[str]) -> None:
    """Add tokens to the tokenizer, and random vectors of these tokens to the weights."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    for token in tokens:
        vocabulary[token] = len(vocabulary)
    path.write_text(json.dumps(tokenizer))
    weights = load_file(folder / "model.safetensors")
    name = "embeddings.word_embeddings.weight"
    weights[name] = np.concatenate([weights[name], _draw(len(tokens), WIDTH)])
    save_file(weights, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": len(vocabulary)}))
