"""ranx's metrics without the rest of ranx, whose import takes seconds and 100 MB for plots and data frames."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Any

_LOCK = RLock()
_METRICS: dict[str, ModuleType] = {}
"""The modules of ranx that `open_metrics` has imported."""


@contextmanager
def open_metrics() -> Iterator[Any]:
    """Open `ranx.metrics` alone. While it is open, an empty package stands in for `ranx`.

    Numba imports a function's module anew when it loads its compiled code, so measures are computed while it is open.
    Afterwards no trace of it is left, so a later `import ranx` is whole. Numba gets the same setting as by ranx.
    """
    with _LOCK:
        if "ranx" in sys.modules:
            yield import_module("ranx.metrics")
            return
        import numba

        if not _METRICS:
            found = find_spec("ranx")
            _METRICS["ranx"] = ModuleType("ranx")
            _METRICS["ranx"].__path__ = list(found.submodule_search_locations or []) if found else []
        sys.modules.update(_METRICS)
        try:
            yield import_module("ranx.metrics")
        finally:
            for name in [name for name in sys.modules if name == "ranx" or name.startswith("ranx.")]:
                _METRICS[name] = sys.modules.pop(name)
            numba.config.THREADING_LAYER = "workqueue"
