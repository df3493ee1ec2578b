"""Files of weights in the form safetensors, whose arrays are mapped and not copied.

A file begins with the length of its header in 8 bytes. The header has the types, shapes and places in JSON.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from keystone.indexing.errors import UserError

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""NumPy's types by those of the form. NumPy lacks BF16: its bits are the upper half of a float32."""


@dataclass(frozen=True, slots=True)
class Weight:
    """The place of an array of weights in its file: numbers of a type and a shape, from a byte to before another."""

    file: Path
    type: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def is_single(self) -> bool:
        """Whether the file holds the array in single precision, so that it can be mapped as it is."""
        return self.type == "F32"

    def read(self) -> NDArray[np.float32]:
        """Map the array, or convert it to single precision."""
        if 0 in self.shape:
            return np.zeros(self.shape, np.float32)
        mapped = np.asarray(np.memmap(self.file, TYPES[self.type], "r", self.begin, self.shape))
        if self.type == "BF16":
            return (mapped.astype(np.uint32) << 16).view(np.float32)
        return mapped.astype(np.float32, copy=False)


def list_weights(file: Path) -> dict[str, Weight]:
    """List the arrays of numbers of a file by their names. `UserError` if the file is damaged or missing."""
    try:
        with file.open("rb") as opened:
            start = 8 + (length := int.from_bytes(opened.read(8), "little"))
            size = file.stat().st_size
            header: dict[str, Any] = orjson.loads(opened.read(length if start <= size else 0))
        found = {
            name: Weight(file, own["dtype"], tuple(own["shape"]), *(start + place for place in own["data_offsets"]))
            for name, own in header.items()
            if own.get("dtype") in TYPES
        }
        for name, one in found.items():
            width = np.dtype(TYPES[one.type]).itemsize
            if one.end - one.begin != width * int(np.prod(one.shape)) or not start <= one.begin <= one.end <= size:
                raise ValueError(f"{name} is not whole")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: could not be read as weights in the form safetensors: {error}") from error
    return found
