"""Small checkpoints of late interaction in PyLate's and in ColBERT's layout, and of BGE-M3, with random weights."""

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.support.models.checkpoints import WIDTH, write_checkpoint

DIMENSION = 12
MARKERS = {"query_prefix": "[Q] ", "document_prefix": "[D] "}


def write_pylate(folder: Path, **settings: Any) -> Path:
    """Write a checkpoint in PyLate's layout; `settings` stand in `config_sentence_transformers.json`."""
    write_checkpoint(folder)
    _add_tokens(folder, [*MARKERS.values(), *string.punctuation])
    dense = folder / "1_Dense"
    dense.mkdir(exist_ok=True)
    save_file({"linear.weight": _draw(DIMENSION, WIDTH)}, dense / "model.safetensors")
    sizes = {"in_features": WIDTH, "out_features": DIMENSION, "bias": False}
    (dense / "config.json").write_text(json.dumps(sizes | {"activation_function": "torch.nn.modules.linear.Identity"}))
    types = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
    listed = [{"idx": n, "name": str(n), "path": path, "type": type} for n, (path, type) in enumerate(types.items())]
    (folder / "modules.json").write_text(json.dumps(listed))
    said = {"model_type": "ColBERT", "similarity_fn_name": "MaxSim", "query_length": 24, "document_length": 40}
    said |= MARKERS | {"do_query_expansion": True, "attend_to_expansion_tokens": False}
    said |= {"skiplist_words": list(string.punctuation)} | settings
    (folder / "config_sentence_transformers.json").write_text(json.dumps(said))
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
