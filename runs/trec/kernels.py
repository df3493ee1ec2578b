"""Compilation of loops over bytes, and threads that run them on several cores."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., object])
A = TypeVar("A")
B = TypeVar("B")
THREADS = min(os.cpu_count() or 1, 4)
"""Threads for one file. More threads would only wait for memory."""


def kernel(function: F) -> F:
    """Compile a loop without Python's lock, and keep the machine code on disk for later processes.

    The loop must not allocate, so its arrays come from the caller. Numba then need not count references to them,
    which would take longer than the loops themselves.
    """
    compiled: F = njit(cache=True, nogil=True, _nrt=False)(function)
    return compiled


def map_in_threads(function: Callable[[A], B], arguments: Sequence[A]) -> list[B]:
    """Call the function with each argument, in threads; kernels run in parallel."""
    if len(arguments) < 2:
        return [function(argument) for argument in arguments]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, arguments))


def map_ahead(function: Callable[[A], B], arguments: Iterable[A]) -> Iterator[B]:
    """Call the function with each argument, in threads, while the caller uses the results before, in their order.

    At most `THREADS + 1` results are in memory or under way. The next argument is taken when the caller has used one.
    """
    ahead: deque[Future[B]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        for argument in arguments:
            ahead.append(pool.submit(function, argument))
            if len(ahead) > THREADS:
                yield ahead.popleft().result()
        for future in ahead:
            yield future.result()
