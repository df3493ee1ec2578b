"""How loops over bytes are compiled."""

from collections.abc import Callable
from typing import TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a loop for all threads, once for all processes.

    It may not allocate: its arrays come from the caller. So numba need not count the references to them, which
    would take longer than the loops do.
    """
    compiled: F = njit(cache=True, nogil=True, _nrt=False)(function)
    return compiled
