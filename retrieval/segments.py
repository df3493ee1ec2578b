"""BM25 over the segments of some documents, for an index without embeddings."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.vectors.types import GRID_STEP, Vectors
from keystone.indexing.words import list_stems


def weigh_segments(
    texts: Sequence[str], documents: Sequence[Sequence[str]], k1: float, b: float
) -> tuple[Vectors, list[Vectors]]:
    """Weigh the words of texts, and of the segments of documents, so that their inner products are scores of BM25.

    The segments are the collection, by which rare words weigh more. Each text's scores are divided by the sum of its
    weights, so that texts of any length compare. Returns float32[texts, words], and float32[segments, words] for each
    document. Entries are on a grid, so inner products are the same in any order of summation.
    """
    asked = [Counter(list_stems(text)) for text in texts]
    place = {stem: number for number, stem in enumerate(sorted(set().union(*asked)))}
    held = [[list_stems(segment) for segment in segments] for segments in documents]
    lengths = [len(stems) for own in held for stems in own]
    mean = sum(lengths) / (len(lengths) or 1) or 1.0
    counts = Counter(stem for own in held for stems in own for stem in place.keys() & set(stems))

    weights = np.zeros((len(texts), len(place)))
    for row, own_counts in zip(weights, asked, strict=True):
        for stem, count in own_counts.items():
            row[place[stem]] = count * math.log1p((len(lengths) - counts[stem] + 0.5) / (counts[stem] + 0.5))
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), GRID_STEP)

    found = [np.zeros((len(own), len(place))) for own in held]
    for rows, own in zip(found, held, strict=True):
        for row, stems in zip(rows, own, strict=True):
            for stem, count in Counter(stem for stem in stems if stem in place).items():
                row[place[stem]] = count / (count + k1 * (1 - b + b * len(stems) / mean))
    return _round(weights), [_round(rows) for rows in found]


def _round(values: NDArray[np.float64]) -> Vectors:
    """Round down to multiples of `GRID_STEP`, so that no sum of products exceeds 1."""
    return (np.floor(values / GRID_STEP) * GRID_STEP).astype(np.float32)
