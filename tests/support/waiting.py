"""Waits of tests. Each has a deadline; after it, the test fails with the name of the awaited event."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

LIMIT_S = 300.0
"""After this time, something hangs. On a quiet machine, waits are orders of magnitude shorter."""


def wait_until(condition: Callable[[], T], what: str | Callable[[], str], seconds: float = LIMIT_S) -> T:
    """Check a condition 50 times a second until it holds, and return its value. After `seconds`, fail with `what`.

    A function as `what` tells the state at the end of the wait.
    """
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"waited {seconds:g} s in vain for {what() if callable(what) else what}"
        time.sleep(0.02)
    return found


def within(work: Callable[[], T], what: str, seconds: float = LIMIT_S) -> T:
    """Do work that may block, and return its value. After `seconds`, leave the work and fail with `what`."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    wait_until(done.done, what, seconds)
    return done.result(0)


def join(thread: Thread, what: str, seconds: float = LIMIT_S) -> None:
    """Wait for the end of a thread. After `seconds`, fail with `what`."""
    thread.join(seconds)
    assert not thread.is_alive(), f"waited {seconds:g} s in vain for {what}"
