"""How loops over bytes are compiled, and run on more than one core."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., object])
A = TypeVar("A")
B = TypeVar("B")
THREADS = min(os.cpu_count() or 1, 4)
"""Threads for one file: with more, it is the memory that is waited for."""


def kernel(function: F) -> F:
    """Compile a loop for all threads, once for all processes.

    It may not allocate: its arrays come from the caller. So numba need not count the references to them, which
    would take longer than the loops do.
    """
    compiled: F = njit(cache=True, nogil=True, _nrt=False)(function)
    return compiled


def in_threads(function: Callable[[A], B], arguments: Sequence[A]) -> list[B]:
    """The function of each argument, all at once; kernels run beside one another."""
    if len(arguments) < 2:
        return [function(argument) for argument in arguments]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, arguments))
