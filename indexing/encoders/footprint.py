"""What a model on this machine takes: whether its files are here, their size, and the memory of its weights."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from keystone.indexing.encoders.checkpoint import SMALL_FILES, WEIGHT_FILES, find_here
from keystone.indexing.encoders.weights import list_weights

WEIGHT_BYTES = 4
"""The bytes of a weight in memory: a processor computes in single precision."""
HUB_TIMEOUT_S = 10.0
"""The time for which the hub may think about the sizes of files."""


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
    """Measure the files of a model, or ask the hub for their sizes if they are not here. It fetches no file.

    `UserError` for damaged weights.
    """
    folder = find_here(model)
    if folder is None:
        sizes = _ask_hub(model)
        return Footprint(use, model, None, sum(sizes.values()) if sizes else None, None)
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    return Footprint(use, model, str(folder), sum(_choose(sizes).values()), _measure_weights(folder))


def _measure_weights(folder: Path) -> int | None:
    """Measure weights in memory: those of safetensors in single precision, else the largest graph or file."""
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return sum(WEIGHT_BYTES * math.prod(one.shape) for file in files for one in list_weights(file).values())
    others = [*folder.rglob("*.onnx"), *folder.glob("*.bin")]
    return max((path.stat().st_size for path in others), default=None)


def _choose(sizes: Mapping[str, int]) -> dict[str, int]:
    """Choose the files that a fetch takes, by their names."""
    first = any(fnmatch(name, pattern) for name in sizes for pattern in WEIGHT_FILES[0])
    wanted = (*SMALL_FILES, *WEIGHT_FILES[0 if first else 1])
    return {name: size for name, size in sizes.items() if any(fnmatch(name, pattern) for pattern in wanted)}


def _ask_hub(model: str) -> dict[str, int]:
    """Ask the hub for the sizes of the files that a fetch would take; empty if it does not tell."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        found = HfApi().model_info(model, files_metadata=True, timeout=HUB_TIMEOUT_S).siblings or ()
    except (HfHubHTTPError, HFValidationError, OSError, ValueError):
        return {}
    except Exception as error:  # the errors of its HTTP client are of no common class over its versions
        if "http" not in type(error).__module__:
            raise
        return {}
    return _choose({one.rfilename: one.size or 0 for one in found})
