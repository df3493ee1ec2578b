"""Linear layers in PyTorch's own form of files, read without PyTorch and without running what a file names.

Such a file is a ZIP archive: `data.pkl` has the names, types and shapes of arrays, and `data/` has their numbers.
"""

import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.errors import UserError

TYPES = {"FloatStorage": "<f4", "HalfStorage": "<f2", "DoubleStorage": "<f8", "BFloat16Storage": "<u2"}
"""NumPy's types by those of PyTorch. NumPy lacks bfloat16: its bits are the upper half of a float32."""


def read_pickled_layer(path: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Read a linear layer: its weights, float32[outputs, inputs], and its bias, float32[outputs] or zero.

    `UserError` if the file is missing or damaged, names anything else than arrays, or holds numbers that are not
    finite.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            with archive.open(name) as file:
                held = _Arrays(file, archive, name.removesuffix("data.pkl")).load()
        weight = np.asarray(held["weight"], np.float32)
        bias = np.asarray(held.get("bias", np.zeros(1)), np.float32)
    except FileNotFoundError as error:
        raise UserError(f"{path}: is missing, expected a checkpoint with this file") from error
    except Exception as error:  # a damaged file raises errors of many kinds in the two libraries
        raise UserError(f"{path}: could not be read as a linear layer of PyTorch: {error}") from error
    if weight.ndim != 2 or not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise UserError(f"{path}: found weights that are no matrix of finite numbers: fetch the checkpoint again")
    return weight, bias


class _Arrays(pickle.Unpickler):
    """Reads arrays alone: any other name in the file is an error."""

    def __init__(self, file: Any, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(file)
        self._archive, self._root = archive, root

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _shape
        if module == "torch" and name in TYPES:
            return name
        raise pickle.UnpicklingError(f"found {module}.{name}, expected arrays of numbers")

    def persistent_load(self, pid: Any) -> NDArray[Any]:
        _, kind, key, *_ = pid
        values = np.frombuffer(self._archive.read(f"{self._root}data/{key}"), TYPES[kind])
        return (values.astype(np.uint32) << 16).view(np.float32) if kind == "BFloat16Storage" else values


def _shape(
    values: NDArray[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> NDArray[Any]:
    whole = values[offset : offset + int(np.prod(shape))].reshape(shape)
    if whole.strides != tuple(step * values.itemsize for step in strides):
        raise pickle.UnpicklingError("found an array in another order than by rows")
    return whole
