"""Vectors of texts: all of one length, so that their inner product is the cosine times a constant.

Entries are rounded to multiples of 2^-12 on a vector just shorter than 1. A product of two entries is then a
multiple of 2^-24, and no partial sum exceeds 1 (Cauchy-Schwarz), so each partial sum fits the 24-bit
significand of a float32: inner products are exact, in any order of summation, on any number of threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from indexing.types import Progress, Tick, silent

Vectors = NDArray[np.float32]

GRID = 2.0**-12

Cut = Callable[[int], None]
"""Receives the position of each text that is longer than the model's window and so loses its end."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The number of threads that embed, and the receiver of progress."""

    threads: int = 1
    progress: Progress = silent


ONE_THREAD = Effort()
"""One thread embeds, and nobody is told."""


class Embedder(Protocol):
    """Turns texts into vectors, in batches."""

    @property
    def dimension(self) -> int:
        """Entries of a vector."""
        ...

    def embed(self, texts: Sequence[str], threads: int = ..., tick: Tick = ..., cut: Cut = ...) -> Vectors:
        """Vectors float32[len(texts), dimension] on the grid; the same for any number of threads.

        `TextRefused` if no part of a text can be embedded.
        """
        ...


def on_grid(vectors: NDArray[np.floating[Any]]) -> Vectors:
    """Rows scaled to one length just below 1 and rounded to the grid, so that inner products are exact in float32.

    Rounding moves a row by at most sqrt(d) * GRID / 2, which is why no row becomes longer than 1.
    """
    wide: NDArray[np.float64] = vectors.astype(np.float64)
    lengths = np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    below_one = 1 - np.sqrt(wide.shape[1]) * GRID / 2
    on: Vectors = (np.rint(wide / lengths * (below_one / GRID)) * GRID).astype(np.float32)
    return on
