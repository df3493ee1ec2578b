"""An interrupt (Ctrl-C) that ends the process within a time, whatever its threads do."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 130
"""The usual exit code of an interrupted process."""


@contextmanager
def interrupts_end_the_process(grace: float, last: Callable[[], object] = lambda: None) -> Iterator[None]:
    """If an interrupt arrives within the block, give the process `grace` seconds, then call `last` and end it.

    Python waits for threads that compute, and nothing can interrupt them. Keystone writes all files so that an end at
    any moment is harmless. In a thread other than the main one, the block changes nothing.
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
