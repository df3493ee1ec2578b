"""Vectors of texts, the embedder that makes them, and the effort that it may take.

All vectors have one length just below 1, so an inner product is the cosine times a constant. Entries are multiples of
2^-12, so a product of two entries is a multiple of 2^-24. No partial sum exceeds 1 (Cauchy-Schwarz), so each partial
sum fits the 24-bit significand of a float32. Inner products are therefore exact in any order of summation, on any
number of threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.types import Progress, Tick, silent

Vectors = NDArray[np.float32]

GRID_STEP = 2.0**-12
"""All entries of a vector are multiples of this number."""

CHUNK_TEXTS = 1_024
"""The texts that an update has in memory at once."""

ReportCut = Callable[[int], None]
"""Receives the position of each text that is longer than the model's window, so that its end is cut off."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What vectors or impacts will take, said before any of them is made."""

    step: str
    texts: int
    bytes: int
    """The space on disk."""
    seconds: float | None
    """None if the model was not tried: one at a URL, or one that a cluster runs."""


Foretell = Callable[[Forecast], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """The number of threads that embed, the receiver of progress, and that of forecasts; None if nobody wants them."""

    threads: int = 1
    progress: Progress = silent
    foretell: Foretell | None = None


ONE_THREAD = Effort()
"""One thread embeds, and no progress is shown."""


class Embedder(Protocol):
    """Turns texts into vectors, in batches."""

    @property
    def dimension(self) -> int:
        """The number of entries of a vector."""

    def find_long(self, texts: Sequence[str]) -> list[int]:
        """The positions of the texts that are longer than the model's window, as far as known before embedding."""

    def embed(self, texts: Sequence[str], threads: int = ..., tick: Tick = ..., cut: ReportCut = ...) -> Vectors:
        """Vectors on the grid, float32[len(texts), dimension], the same for any number of threads.

        `TextRefused` if no part of a text can be embedded.
        """


def round_to_grid(vectors: NDArray[np.floating[Any]]) -> Vectors:
    """Scale rows to one length just below 1, and round their entries to the grid: float32[n, d] of floats[n, d].

    Rounding moves a row by at most sqrt(d) * GRID_STEP / 2, and the length is below 1 by this amount. So no row becomes
    longer than 1, and inner products are exact in float32.
    """
    wide: NDArray[np.float64] = vectors.astype(np.float64)
    lengths = np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    below_one = 1 - np.sqrt(wide.shape[1]) * GRID_STEP / 2
    on: Vectors = (np.rint(wide / lengths * (below_one / GRID_STEP)) * GRID_STEP).astype(np.float32)
    return on
