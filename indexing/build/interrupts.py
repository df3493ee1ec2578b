"""An interrupt (Ctrl-C) as the end of a process within a time, whatever its threads are at."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 130
"""The exit code of what was interrupted, as everywhere."""


@contextmanager
def interrupts_end_the_process(grace: float, last: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Within the block an interrupt leaves the process so many seconds to end by itself, then calls `last` and ends it.

    Threads in the midst of a computation, which Python waits for, cannot be interrupted. All files are written so that
    an end at any moment is harmless. Only the main thread can ask for this; others' blocks change nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, told = socket.socketpair()
    told.setblocking(False)

    def listen() -> None:
        with heard:
            for number in iter(lambda: heard.recv(1), b""):
                if number[0] == signal.SIGINT:
                    time.sleep(grace)
                    try:
                        last()
                    finally:
                        os._exit(INTERRUPTED)

    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=listen, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        told.close()
