"""The weights of networks: those of BERT's family by BERT's names, with the sizes that a graph needs.

RoBERTa, XLM-RoBERTa, CamemBERT and DistilBERT have the layers of BERT (Devlin et al., 2019) under other names.

This module also tells what a model takes in memory and on disk. The hub is asked for the sizes of files that are not
here.
"""

import math
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from keystone.indexing.encoders.checkpoint import (
    SMALL_FILES,
    Checkpoint,
    find_first_place,
    find_here,
    list_weight_files,
    read_json,
    refuse,
)
from keystone.indexing.errors import UserError
from keystone.indexing.io.error_text import name_members

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""NumPy's types by those of safetensors. NumPy lacks BF16: its bits are the upper half of a float32."""
TORCH_TYPES = {"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
"""The types of safetensors by those of PyTorch."""


def read_pickled_layer(path: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Read a linear layer in PyTorch's own form: weights, float32[outputs, inputs], and bias, float32[outputs] or zero.

    Neither PyTorch nor anything that the file names runs. Such a file is a ZIP archive: `data.pkl` has the names, types
    and shapes of arrays, and `data/` has their numbers.

    `UserError` if the file is missing or damaged, names anything but arrays, or holds numbers that are not finite.
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
        raise UserError(f"{path}: the weights are not a matrix of finite numbers: fetch the checkpoint again")
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
        if module == "torch" and name in TORCH_TYPES:
            return name
        raise pickle.UnpicklingError(f"found {module}.{name}, expected arrays of numbers")

    def persistent_load(self, pid: Any) -> NDArray[Any]:
        _, kind, key, *_ = pid
        held = TORCH_TYPES[kind]
        return _widen(np.frombuffer(self._archive.read(f"{self._root}data/{key}"), TYPES[held]), held)


def _widen(values: NDArray[Any], kind: str) -> NDArray[Any]:
    return (values.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else values


def _shape(
    values: NDArray[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> NDArray[Any]:
    whole = values[offset : offset + int(np.prod(shape))].reshape(shape)
    if whole.strides != tuple(step * values.itemsize for step in strides):
        raise pickle.UnpicklingError("found an array in another order than by rows")
    return whole


@dataclass(frozen=True, slots=True)
class Weight:
    """The place of an array of weights in its file: numbers of a type and a shape, from a byte to before another."""

    file: Path
    type: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> NDArray[np.float32]:
        """Map the array, or convert it to single precision."""
        if 0 in self.shape:
            return np.zeros(self.shape, np.float32)
        mapped = np.asarray(np.memmap(self.file, TYPES[self.type], "r", self.begin, self.shape))
        return _widen(mapped, self.type).astype(np.float32, copy=False)


def list_weights(file: Path) -> dict[str, Weight]:
    """List the arrays of a safetensors file, whose header is JSON. `UserError` if it is damaged or missing."""
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


def list_missing(folder: Path, wanted: Sequence[str], held: Mapping[str, Any]) -> None:
    """Raise `UserError` for the first of the wanted weights that a checkpoint lacks."""
    if missing := [name for name in wanted if name not in held]:
        raise UserError(f"{folder}: found no weights {missing[0]!r} in model.safetensors{name_members(dict(held))}")


def read_linear(path: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Read a linear layer: weights, float32[outputs, inputs], and bias, float32[outputs] or zero; else `UserError`."""
    weights = list_weights(path)
    list_missing(path.parent, ["linear.weight"], weights)
    bias = weights["linear.bias"].read() if "linear.bias" in weights else np.zeros(1, np.float32)
    return weights["linear.weight"].read(), bias


ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")

Weights = Mapping[str, Weight]

_RENAMED = {
    r"^(bert|roberta|distilbert|model)\.": "",
    r"\.gamma$": ".weight",
    r"\.beta$": ".bias",
    r"^transformer\.layer\.": "encoder.layer.",
    r"\.attention\.q_lin\.": ".attention.self.query.",
    r"\.attention\.k_lin\.": ".attention.self.key.",
    r"\.attention\.v_lin\.": ".attention.self.value.",
    r"\.attention\.out_lin\.": ".attention.output.dense.",
    r"\.sa_layer_norm\.": ".attention.output.LayerNorm.",
    r"\.ffn\.lin1\.": ".intermediate.dense.",
    r"\.ffn\.lin2\.": ".output.dense.",
    r"\.output_layer_norm\.": ".output.LayerNorm.",
    r"^(cls\.predictions\.transform\.dense|lm_head\.dense|vocab_transform)\.": "words.dense.",
    r"^(cls\.predictions\.transform\.LayerNorm|lm_head\.layer_norm|vocab_layer_norm)\.": "words.LayerNorm.",
    r"^(cls\.predictions|lm_head)\.bias$": "words.decoder.bias",
    r"^(cls\.predictions\.decoder|lm_head\.decoder|vocab_projector)\.": "words.decoder.",
    r"^(pooler\.dense|classifier\.dense|pre_classifier)\.": "labels.dense.",
    r"^classifier\.out_proj\.": "labels.decoder.",
    r"^classifier\.": "labels.decoder.",
}
"""The names of weights, as patterns, and what replaces them. `words` and `labels` are the two heads."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The sizes of a network, and its activations."""

    layers: int
    heads: int
    width: int
    epsilon: float
    activation: str
    first_place: int
    label_activation: str
    """The activation of the head of labels: `Tanh` or `Relu`."""


def read_layout(checkpoint: Checkpoint) -> Layout:
    """Read the sizes of a network of BERT's family from `config.json`. `UserError` for one that has other layers."""
    config, kind = checkpoint.config, checkpoint.kind
    names = {"layers": "n_layers", "heads": "n_heads", "width": "dim", "activation": "activation"}
    if kind != "distilbert":
        names = {"layers": "num_hidden_layers", "heads": "num_attention_heads", "width": "hidden_size"}
        names |= {"activation": "hidden_act"}
    found = {key: config.get(name) for key, name in names.items()}
    for key in ("layers", "heads", "width"):
        if not isinstance(found[key], int) or not found[key]:
            raise refuse(checkpoint, f"{names[key]}: {found[key]!r} in config.json", "a number above 0")
    if found["activation"] not in ACTIVATIONS:
        raise refuse(checkpoint, f"{names['activation']}: {found['activation']!r}", ", ".join(ACTIVATIONS))
    if (placed := config.get("position_embedding_type", "absolute")) != "absolute":
        raise refuse(checkpoint, f"position_embedding_type: {placed!r}", "absolute")
    return Layout(
        int(found["layers"] or 0), int(found["heads"] or 0), int(found["width"] or 0),
        float(config.get("layer_norm_eps", 1e-12)), str(found["activation"]), find_first_place(config),
        "Relu" if kind == "distilbert" else "Tanh",
    )  # fmt: skip


def load_weights(checkpoint: Checkpoint) -> Weights:
    """Find weights by BERT's names without the network's. `UserError` if a file or a layer is missing or damaged."""
    if not checkpoint.weights:
        raise refuse(checkpoint, "no weights", "model.safetensors, or the network as onnx/model.onnx")
    found = {_rename(name): one for path in checkpoint.weights for name, one in list_weights(path.resolve()).items()}
    layers = [f"encoder.layer.{number}.output.dense.weight" for number in range(read_layout(checkpoint).layers)]
    list_missing(checkpoint.folder, ["embeddings.word_embeddings.weight", *layers], found)
    if not all(np.isfinite(one.read()[:1]).all() for one in found.values()):
        raise refuse(checkpoint, "weights that are not finite", "numbers")
    return found


def _rename(name: str) -> str:
    for pattern, replacement in _RENAMED.items():
        name = re.sub(pattern, replacement, name)
    return name


WEIGHT_BYTES = 4
"""The bytes of a weight in memory: a processor computes in single precision."""
HUB_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """A model that runs on this machine, and what it takes, in bytes; None for what is not known."""

    use: str
    model: str
    folder: str | None
    """The folder of its files; None if they would be fetched."""
    disk: int | None
    memory: int | None
    """The size of its weights in memory."""


def measure_footprint(use: str, model: str) -> Footprint:
    """Measure the files of a model, or ask the hub for sizes; fetches none. `UserError` for damaged weights."""
    folder = find_here(model)
    if folder is None:
        sizes = _ask_hub(model)
        return Footprint(use, model, None, sum(sizes.values()) if sizes else None, None)
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    kinds = list_weight_files(read_json(folder / "config.json", needed=False), sizes)
    return Footprint(use, model, str(folder), sum(_choose(sizes, kinds).values()), _measure_weights(folder))


def _measure_weights(folder: Path) -> int | None:
    """Measure weights in memory: those of safetensors in single precision, else the largest graph or file."""
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return sum(WEIGHT_BYTES * math.prod(one.shape) for file in files for one in list_weights(file).values())
    others = [*folder.rglob("*.onnx"), *folder.glob("*.bin")]
    return max((path.stat().st_size for path in others), default=None)


def _choose(sizes: Mapping[str, int], kinds: Sequence[tuple[str, ...]]) -> dict[str, int]:
    """Choose the files that a fetch takes, by the patterns of `list_weight_files`."""
    wanted = (*SMALL_FILES, *next((own for own in kinds if any(fnmatch(name, own[0]) for name in sizes)), kinds[-1]))
    return {name: size for name, size in sizes.items() if any(fnmatch(name, pattern) for pattern in wanted)}


def _ask_hub(model: str) -> dict[str, int]:
    """Ask the hub for the sizes of the files that a fetch would take; empty if it does not tell."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        found = HfApi().model_info(model, files_metadata=True, timeout=HUB_TIMEOUT_S)
    except (HfHubHTTPError, HFValidationError, OSError, ValueError):
        return {}
    except Exception as error:  # the errors of its HTTP client are of no common class over its versions
        if "http" not in type(error).__module__:
            raise
        return {}
    sizes = {one.rfilename: one.size or 0 for one in found.siblings or ()}
    return _choose(sizes, list_weight_files(found.config or {}))
