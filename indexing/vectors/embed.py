"""Embeddings of texts: vectors of one length whose inner product is the cosine, but for a constant.

Entries are rounded to multiples of 2^-12 on a vector just shorter than 1. A product of two entries is then a
multiple of 2^-24, and no partial sum exceeds 1 (Cauchy-Schwarz), so each partial sum fits the 24-bit
significand of a float32: inner products are exact, in any order of summation, on any number of threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from indexing.errors import UserError
from indexing.types import Tick

Vectors = NDArray[np.float32]

GRID = 2.0**-12
LOCAL = "all-MiniLM-L6-v2"

Cut = Callable[[int], None]
"""Is told the position of each text that was longer than the model's window and lost its end."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """An embedding model: the local one, or one behind an OpenAI-compatible endpoint where `url` is given.

    `window` is the endpoint's number of tokens, asked for where None; the prefixes are put before each text.
    `key_env` names the environment variable that holds the endpoint's key.
    """

    model: str = LOCAL
    url: str | None = None
    window: int | None = None
    query_prefix: str = ""
    passage_prefix: str = ""
    key_env: str | None = None

    @property
    def made_by(self) -> dict[str, Any]:
        """What its vectors depend on, as JSON: all but the name of the key."""
        return {name: value for name, value in asdict(self).items() if name != "key_env"}


MINILM = Embedding()


class Embedder(Protocol):
    """Turns texts into vectors, in batches."""

    @property
    def dimension(self) -> int:
        """Entries of a vector."""
        ...

    def embed(self, texts: Sequence[str], threads: int = ..., tick: Tick = ..., cut: Cut = ...) -> Vectors:
        """Vectors float32[len(texts), dimension] on the grid; the same for any number of threads.

        `TextRefused` for a text of which no part could be embedded.
        """
        ...


class TextRefused(UserError):
    """The model takes no part of the text at `position`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def on_grid(vectors: NDArray[np.floating[Any]]) -> Vectors:
    """Give rows one length just below 1 and round them to the grid, so that inner products are exact in float32.

    Rounding moves a row by at most sqrt(d) * GRID / 2, which is why no row becomes longer than 1.
    """
    wide: NDArray[np.float64] = vectors.astype(np.float64)
    lengths = np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    below_one = 1 - np.sqrt(wide.shape[1]) * GRID / 2
    on: Vectors = (np.rint(wide / lengths * (below_one / GRID)) * GRID).astype(np.float32)
    return on


@cache
def embedder(embedding: Embedding) -> Embedder:
    """The model, made ready once a process. `UserError` for one that is neither local nor at a URL."""
    if embedding.url:
        from indexing.vectors.endpoint import Endpoint

        return Endpoint(embedding.model, embedding.url, embedding.window, embedding.key_env)
    if embedding.model != LOCAL or embedding.window or embedding.key_env:
        raise UserError(
            f"embedding model: found {embedding.model!r} without a URL, expected {LOCAL} in its own window, "
            "or the URL of an endpoint"
        )
    from indexing.vectors.minilm import MiniLM

    return MiniLM()


def embed_queries(embedding: Embedding, texts: Sequence[str], threads: int = 1, tick: Tick = lambda _: None) -> Vectors:
    """The vectors of what is asked, float32[len(texts), dimension]."""
    return embedder(embedding).embed([embedding.query_prefix + text for text in texts], threads, tick)


def embed_passages(
    embedding: Embedding,
    texts: Sequence[str],
    threads: int = 1,
    tick: Tick = lambda _: None,
    cut: Cut = lambda _: None,
) -> Vectors:
    """The vectors of what is searched, float32[len(texts), dimension]."""
    return embedder(embedding).embed([embedding.passage_prefix + text for text in texts], threads, tick, cut)
