"""ranx's metrics without the rest of ranx, whose import takes seconds and 100 MB for plots and data frames."""

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


@cache
def load_metrics() -> Any:
    """Import `ranx.metrics` alone. While it is imported, an empty package stands in for `ranx`.

    Afterwards no trace of it is left, so a later `import ranx` is whole. Numba gets the same setting as by ranx.
    """
    if "ranx" in sys.modules:
        return import_module("ranx.metrics")
    import numba

    found = find_spec("ranx")
    package = ModuleType("ranx")
    package.__path__ = list(found.submodule_search_locations or []) if found else []
    sys.modules["ranx"] = package
    try:
        return import_module("ranx.metrics")
    finally:
        for name in [name for name in sys.modules if name == "ranx" or name.startswith("ranx.")]:
            del sys.modules[name]
        numba.config.THREADING_LAYER = "workqueue"
