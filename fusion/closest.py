"""The segments closest to texts (Keystone-Docs RAG, section 2.4): one of a document, or a ranking of several."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.fuse import fuse_reciprocal_ranks
from keystone.indexing.embedder import Vectors


def find_closest_segments(texts: Vectors, segments: Vectors) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the closest segment of each text by cosine: `argmax_s cos(E(x), E(s))` (Keystone-Docs RAG, section 2.4).

    `texts` (float32[t, d]) and `segments` (float32[s, d], s > 0) are unit vectors. Returns the number of each text's
    segment (int64[t]) and their cosine (float32[t]). If two segments tie, the earlier one wins.
    """
    cosines = texts @ segments.T
    best = np.argmax(cosines, axis=1)
    return best, cosines[np.arange(len(texts)), best]


def choose_closest_segments(texts: Vectors, segments: Vectors, most: int) -> list[int]:
    """Choose the numbers of the `most` segments (float32[s, d]) closest to any text (float32[t, d]), closest first.

    If two segments tie, the earlier one comes first.
    """
    order: list[int] = np.argsort(-(texts @ segments.T).max(axis=0), kind="stable").tolist()
    return order[:most]


def rank_segments(texts: Vectors, documents: Sequence[Vectors], most: int) -> list[tuple[int, int, float]]:
    """Rank at most `most` segments of each document: those closest to any of the texts (float32[t, d]).

    `documents` has the vectors of each document's segments, float32[segments, d], the best document first. Two lists
    are fused by reciprocal ranks: the segments in the order of their documents, and in the order of their cosines.
    Returns the place of the document, the number of the segment and its score, best first. Segments of equal cosine
    stay in the order of their documents. `fuse_reciprocal_ranks` breaks ties of scores.
    """
    cosines = [(texts @ own.T).max(axis=0) for own in documents]
    by_document = [
        (place, number) for place, own in enumerate(documents) for number in choose_closest_segments(texts, own, most)
    ]
    by_cosine = sorted(by_document, key=lambda pair: -cosines[pair[0]][pair[1]])
    return [(*pair, score) for pair, score in fuse_reciprocal_ranks([by_document, by_cosine])]
