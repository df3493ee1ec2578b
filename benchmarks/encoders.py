"""Encoders and cross-encoders beside sentence-transformers, in single precision, by the processor time of all threads.

The encoder is bge-small-en-v1.5. The cross-encoder has the layers of MiniLM and a random head, which costs the same as
a trained one.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from benchmarks.dense import BATCH_TEXTS
from benchmarks.table import Row, take_turns
from benchmarks.texts import draw_questions, read_passages
from keystone.indexing.encoders.checkpoint import read_checkpoint
from keystone.indexing.encoders.dense import Encoder
from keystone.indexing.encoders.pairs import open_pair_scorer
from keystone.indexing.io.published import MINILM, find_published
from tests.support.models.jars import write_bge_weights

THREADS = os.cpu_count() or 1
TEXTS, REPEATS = 64, 3
MOST_WORDS = 120


def rows() -> list[Row]:
    """Texts and pairs in a second of processor time, and how close the results are."""
    texts = _vary_lengths(read_passages(TEXTS))
    with tempfile.TemporaryDirectory() as folder:
        return [*_compare_encoders(Path(folder), texts), *_compare_cross_encoders(Path(folder), texts)]


def _vary_lengths(texts: list[str]) -> list[str]:
    """Cut each text to a random number of words, as real passages differ."""
    random = np.random.default_rng(2)
    return [" ".join(text.split()[: random.integers(20, MOST_WORDS + 1)]) for text in texts]


def _compare_encoders(folder: Path, texts: list[str]) -> list[Row]:
    import torch
    from sentence_transformers import SentenceTransformer

    (folder / "bge").mkdir()
    model = write_bge_weights(folder / "bge")
    ours, theirs = Encoder(read_checkpoint(str(model))), SentenceTransformer(str(model), device="cpu")
    torch.set_num_threads(THREADS)

    def encode() -> np.ndarray:
        return np.asarray(theirs.encode(texts, batch_size=BATCH_TEXTS, show_progress_bar=False))

    one, other = ours.embed(texts, THREADS), encode()
    nearest = float(((one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)).min())
    seconds = take_turns({"ours": lambda: ours.embed(texts, THREADS), "peer": encode}, repeats=REPEATS, cpu=True)
    return [
        _compare_rates("bge-small, texts of 20 to 120 words", seconds, "texts/CPU s"),
        Row("bge-small: smallest cosine to its vectors", nearest, 1.0, "cosine", nearest, 0.9999, "the grid of 2^-12"),
    ]


def _compare_cross_encoders(folder: Path, texts: list[str]) -> list[Row]:
    from sentence_transformers import CrossEncoder

    model = write_cross_encoder(folder / "cross")
    ours, theirs = open_pair_scorer(str(model)), CrossEncoder(str(model), device="cpu")
    (query,) = draw_questions(read_passages(1), 1)
    pairs = [(query, text) for text in texts]

    def predict() -> np.ndarray:
        return np.asarray(theirs.predict(pairs, batch_size=BATCH_TEXTS, show_progress_bar=False))

    furthest = float(np.abs(ours(query, texts, THREADS) - predict()).max())
    seconds = take_turns({"ours": lambda: ours(query, texts, THREADS), "peer": predict}, repeats=REPEATS, cpu=True)
    return [
        _compare_rates("cross-encoder of 6 layers, passages of 20 to 120 words", seconds, "pairs/CPU s"),
        Row(
            "cross-encoder: greatest difference to its scores", furthest, 1e-4, "logit", 1e-4 / furthest, 1.0,
            "single precision",
        ),
    ]  # fmt: skip


def _compare_rates(name: str, seconds: dict[str, float], unit: str) -> Row:
    mine, peer = (TEXTS / seconds[one] for one in ("ours", "peer"))
    bound = "matrix products; texts of one length share a batch, so nothing is padded"
    return Row(f"{name}: beside sentence-transformers", mine, peer, unit, mine / peer, 1.5, bound)


def write_cross_encoder(folder: Path) -> Path:
    """Write a cross-encoder with the layers of MiniLM and a random head, in the layout of transformers."""
    source, random = find_published(MINILM), np.random.default_rng(3)
    folder.mkdir()
    weights = load_file(source / "model.safetensors")
    weights = {f"bert.{name}": values for name, values in weights.items() if "position_ids" not in name}
    width = len(weights["bert.embeddings.LayerNorm.weight"])
    for name, shape in (("bert.pooler.dense", (width, width)), ("classifier", (1, width))):
        weights[f"{name}.weight"] = random.normal(0, 0.02, shape).astype(np.float32)
        weights[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    shutil.copy(source / "tokenizer.json", folder)
    config = {
        "architectures": ["BertForSequenceClassification"], "model_type": "bert", "hidden_size": width,
        "intermediate_size": 4 * width, "num_hidden_layers": 6, "num_attention_heads": 12, "hidden_act": "gelu",
        "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "vocab_size": 30522, "type_vocab_size": 2,
        "pad_token_id": 0, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
        "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
    }  # fmt: skip
    words = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, "pad_token": "[PAD]",
        "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "mask_token": "[MASK]",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }  # fmt: skip
    for name, content in (("config.json", config), ("tokenizer_config.json", words)):
        (folder / name).write_text(json.dumps(content))
    return folder
