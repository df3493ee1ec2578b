"""Segment assignment (Keystone-Docs RAG, section 2.4): the segment of a document that is closest to a text."""

import numpy as np
from numpy.typing import NDArray

from indexing.vectors.types import Vectors


def find_closest_segments(texts: Vectors, segments: Vectors) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the closest segment of each text by cosine: `argmax_s cos(E(x), E(s))` (Keystone-Docs RAG, section 2.4).

    `texts` (float32[t, d]) and `segments` (float32[s, d], s > 0) are unit vectors. Returns the number of each text's
    segment (int64[t]) and their cosine (float32[t]). If two segments tie, the earlier one wins.
    """
    cosines = texts @ segments.T
    best = np.argmax(cosines, axis=1)
    return best, cosines[np.arange(len(texts)), best]
