"""Vectors around centres, as texts lie around subjects."""

import numpy as np

from keystone.indexing.embedder import Vectors, round_to_grid

COUNT, DIMENSION = 2_000, 32


def make_clustered_vectors(count: int, seed: int) -> Vectors:
    """Vectors around 40 centres, as texts lie around subjects."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(40, DIMENSION))
    return round_to_grid(centres[random.integers(0, 40, count)] + random.normal(size=(count, DIMENSION)) / 2)
