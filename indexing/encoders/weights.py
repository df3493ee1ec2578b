"""The weights of networks of BERT's family under one set of names, those of BERT, and the sizes that a graph needs.

RoBERTa, XLM-RoBERTa, CamemBERT and DistilBERT have the layers of BERT (Devlin et al., 2019) under other names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from keystone.indexing.encoders.checkpoint import ROBERTA, Checkpoint, find_first_place, list_missing, refuse
from keystone.indexing.encoders.safetensors import Weight, list_weights

FAMILY = ("bert", "distilbert", *ROBERTA)
"""The values of `model_type` whose networks have BERT's layers."""
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")

Weights = Mapping[str, Weight]

_RENAMED = {
    r"^(bert|roberta|distilbert|model)\.": "",
    r"\.gamma$": ".weight",
    r"\.beta$": ".bias",
    r"^transformer\.layer\.": "encoder.layer.",
    r"\.attention\.q_lin\.": ".attention.self.query.",
    r"\.attention\.k_lin\.": ".attention.self.key.",
    r"\.attention\.v_lin\.": ".attention.self.value.",
    r"\.attention\.out_lin\.": ".attention.output.dense.",
    r"\.sa_layer_norm\.": ".attention.output.LayerNorm.",
    r"\.ffn\.lin1\.": ".intermediate.dense.",
    r"\.ffn\.lin2\.": ".output.dense.",
    r"\.output_layer_norm\.": ".output.LayerNorm.",
    r"^(cls\.predictions\.transform\.dense|lm_head\.dense|vocab_transform)\.": "words.dense.",
    r"^(cls\.predictions\.transform\.LayerNorm|lm_head\.layer_norm|vocab_layer_norm)\.": "words.LayerNorm.",
    r"^(cls\.predictions|lm_head)\.bias$": "words.decoder.bias",
    r"^(cls\.predictions\.decoder|lm_head\.decoder|vocab_projector)\.": "words.decoder.",
    r"^(pooler\.dense|classifier\.dense|pre_classifier)\.": "labels.dense.",
    r"^classifier\.out_proj\.": "labels.decoder.",
    r"^classifier\.": "labels.decoder.",
}
"""The names of weights, as patterns, and what stands in their place. `words` and `labels` are the two heads."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The sizes of a network, and its activations."""

    layers: int
    heads: int
    width: int
    epsilon: float
    activation: str
    first_place: int
    """The number of the first token's place."""
    label_activation: str
    """The activation of the head of labels: `Tanh` or `Relu`."""


def read_layout(checkpoint: Checkpoint) -> Layout:
    """Read the sizes of a network of BERT's family from `config.json`. `UserError` for one that has other layers."""
    config, kind = checkpoint.config, checkpoint.kind
    names = {"layers": "n_layers", "heads": "n_heads", "width": "dim", "activation": "activation"}
    if kind != "distilbert":
        names = {"layers": "num_hidden_layers", "heads": "num_attention_heads", "width": "hidden_size"}
        names |= {"activation": "hidden_act"}
    found = {key: config.get(name) for key, name in names.items()}
    for key in ("layers", "heads", "width"):
        if not isinstance(found[key], int) or not found[key]:
            raise refuse(checkpoint, f"{names[key]}: {found[key]!r} in config.json", "a number above 0")
    if found["activation"] not in ACTIVATIONS:
        raise refuse(checkpoint, f"{names['activation']}: {found['activation']!r}", ", ".join(ACTIVATIONS))
    if (placed := config.get("position_embedding_type", "absolute")) != "absolute":
        raise refuse(checkpoint, f"position_embedding_type: {placed!r}", "absolute")
    return Layout(
        int(found["layers"] or 0), int(found["heads"] or 0), int(found["width"] or 0),
        float(config.get("layer_norm_eps", 1e-12)), str(found["activation"]), find_first_place(config),
        "Relu" if kind == "distilbert" else "Tanh",
    )  # fmt: skip


def load_weights(checkpoint: Checkpoint) -> Weights:
    """Find the weights of a network of BERT's family, by BERT's names without the name of the network.

    `UserError` if a file is missing or damaged, or if a layer is missing.
    """
    if not checkpoint.weights:
        raise refuse(checkpoint, "no weights", "model.safetensors, or the network as onnx/model.onnx")
    found = {_rename(name): one for path in checkpoint.weights for name, one in list_weights(path.resolve()).items()}
    layers = [f"encoder.layer.{number}.output.dense.weight" for number in range(read_layout(checkpoint).layers)]
    list_missing(checkpoint.folder, ["embeddings.word_embeddings.weight", *layers], found)
    if not all(np.isfinite(one.read()[:1]).all() for one in found.values()):
        raise refuse(checkpoint, "weights that are not finite", "numbers")
    return found


def _rename(name: str) -> str:
    for pattern, replacement in _RENAMED.items():
        name = re.sub(pattern, replacement, name)
    return name
