"""The vectors of a document's passages in OpenSearch: one field of the document, which holds them packed.

Entries of vectors are whole steps of the grid (`keystone.indexing.vectors.types`), so each takes two bytes.
"""

from base64 import b64decode, b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.vectors.types import GRID_STEP, Vectors

PASSAGES = "passages"
"""The field of the packed vectors. A document without passages lacks it."""


def passages_field(faiss: str, dimension: int) -> dict[str, Any]:
    """Make the field, which keeps the dimension for searches. `UserError` for any FAISS factory string but Flat."""
    if faiss != "Flat":
        raise UserError(f"--faiss {faiss!r}: OpenSearch searches passages exactly; expected Flat, or --dense all")
    return {"type": "binary", "doc_values": True, "meta": {"dimension": str(dimension)}}


def pack_vectors(vectors: Vectors) -> str:
    """Pack vectors on the grid, float32[passages, dimension], one after the other; the text is base64."""
    return b64encode(count_steps(vectors).tobytes()).decode()


def unpack_vectors(packed: str, dimension: int) -> Vectors:
    """Read packed vectors: float32[passages, dimension]. `ValueError` for a text that holds none."""
    vectors: Vectors = np.frombuffer(b64decode(packed), "<i2").reshape(-1, dimension) * np.float32(GRID_STEP)
    if not len(vectors):
        raise ValueError("found no vectors of passages")
    return vectors


def count_steps(vectors: Vectors) -> NDArray[np.int16]:
    """Turn entries on the grid into numbers of its steps: int16 of the same shape, little-endian."""
    steps: NDArray[np.int16] = np.rint(vectors / GRID_STEP).astype("<i2")
    return steps
