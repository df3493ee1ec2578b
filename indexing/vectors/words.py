"""Vectors of words, without a model: by them, an index without embeddings chooses segments and sentences."""

import math
from collections import Counter
from collections.abc import Sequence
from zlib import crc32

import numpy as np

from keystone.indexing.types import Tick
from keystone.indexing.vectors.types import ReportCut, Vectors, round_to_grid
from keystone.indexing.words import list_stems

DIMENSION = 2048
"""The entries of a vector. Two stems share one of them by chance, and half of these cancel out."""


class WordVectors:
    """An `Embedder` that gives each stem of a content word an entry, by its hash.

    A stem that occurs n times weighs 1 + log n.
    """

    dimension = DIMENSION

    def find_long(self, texts: Sequence[str]) -> list[int]:  # noqa: ARG002
        """Find no text, because none is too long."""
        return []

    def embed(
        self,
        texts: Sequence[str],
        threads: int = 1,  # noqa: ARG002
        tick: Tick = lambda _: None,
        cut: ReportCut = lambda _: None,  # noqa: ARG002
    ) -> Vectors:
        """Vectors on the grid, float32[len(texts), dimension]. A text without content words has zeros."""
        found = np.zeros((len(texts), DIMENSION))
        for row, text in zip(found, texts, strict=True):
            for stem, count in sorted(Counter(list_stems(text)).items()):
                code = crc32(stem.encode())
                row[code % DIMENSION] += (1 if code // DIMENSION % 2 else -1) * (1 + math.log(count))
        tick(len(texts))
        return round_to_grid(found)
