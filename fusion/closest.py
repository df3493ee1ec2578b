"""Segment assignment (Keystone-Docs RAG, section 2.4): the segment of a document that is closest to a text."""

import numpy as np
from numpy.typing import NDArray

from indexing.vectors.types import Vectors


def closest(texts: Vectors, segments: Vectors) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For each text (float32[t, d]) the number of its closest segment (of float32[s, d]) and their cosine.

    Ties go to the earlier segment.
    """
    cosines = texts @ segments.T
    best = np.argmax(cosines, axis=1)
    return best, cosines[np.arange(len(texts)), best]
