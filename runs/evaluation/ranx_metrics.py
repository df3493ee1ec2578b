"""ranx's metrics without the rest of ranx, whose import takes seconds and 100 MB for plots and data frames."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Any

LEAST_PARALLEL_TOPICS = 1_000
"""Below this number of topics, the threads of a metric would wait for each other longer than they work."""
_LOCK = RLock()
_METRICS: dict[str, ModuleType] = {}
"""The modules of ranx that `open_metrics` has imported."""


@contextmanager
def open_metrics(topics: int) -> Iterator[Any]:
    """Open `ranx.metrics` alone, for this number of topics. While it is open, an empty package stands in for `ranx`.

    Numba imports a function's module anew when it loads its compiled code, so measures are computed while it is open.
    Afterwards no trace of it is left, so a later `import ranx` is whole. Numba gets the same setting as by ranx. Fewer
    topics than `LEAST_PARALLEL_TOPICS` are measured by a single thread.
    """
    import numba

    with _LOCK:
        numba.config.THREADING_LAYER = "workqueue"
        threads = numba.get_num_threads()
        numba.set_num_threads(1 if topics < LEAST_PARALLEL_TOPICS else threads)
        try:
            with _stand_in_for_ranx():
                yield import_module("ranx.metrics")
        finally:
            numba.set_num_threads(threads)


@contextmanager
def _stand_in_for_ranx() -> Iterator[None]:
    if "ranx" in sys.modules:
        yield
        return
    if not _METRICS:
        found = find_spec("ranx")
        _METRICS["ranx"] = ModuleType("ranx")
        _METRICS["ranx"].__path__ = list(found.submodule_search_locations or []) if found else []
    sys.modules.update(_METRICS)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name == "ranx" or name.startswith("ranx.")]:
            _METRICS[name] = sys.modules.pop(name)
