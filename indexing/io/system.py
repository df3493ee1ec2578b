"""What Windows lacks or does in other ways, and how an interrupt (Ctrl-C) ends the process within a time.

Windows differs in locks of files and folders, groups of processes, modes and the C library. No other module may use
these directly, and a test checks that. The branches for Windows are tested with a stand-in of its module `msvcrt`, and
not on Windows itself.
"""

import os
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

LOCKED_BYTE = 2**31 - 2
"""The place of the byte that is locked on Windows, where others cannot read a locked byte: after all content."""


def lock_file(handle: int, wait: bool = False) -> None:
    """Lock an open file until it is closed. `BlockingIOError` if another process holds it and `wait` is false."""
    if sys.platform == "win32":
        import msvcrt

        place = os.lseek(handle, 0, os.SEEK_CUR)
        os.lseek(handle, LOCKED_BYTE, os.SEEK_SET)
        try:
            while True:
                try:
                    msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                    return
                except OSError as error:  # a wait ends after ten seconds
                    if not wait:
                        raise BlockingIOError(*error.args) from error
        finally:
            os.lseek(handle, place, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def find_lock(folder: Path) -> Path:
    """Return what to open and lock for a folder: itself, or on Windows, which opens no folders, a file beside it."""
    if sys.platform == "win32":
        beside = folder.with_name(f".{folder.name}.lock")
        beside.touch()
        return beside
    return folder


def kill_group(process: int) -> None:
    """Kill a process that began a group of its own, and those of its group, which may still run after it."""
    if sys.platform == "win32":
        import subprocess

        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process)], capture_output=True)
    else:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)


def read_open_mode(file: Path) -> int:
    """Return the mode of a file that other users may read, and 0 for any other file, and on Windows for all."""
    mode = stat.S_IMODE(file.stat().st_mode)
    return mode if mode & 0o177 and sys.platform != "win32" else 0


def allow_open_files(number: int) -> None:
    """Let this process hold more files open, such as mapped arrays, as far as the system allows."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            wanted = soft + number
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def load_c_library() -> "ctypes.CDLL | None":
    """Load the C library of this process; None on Windows, which has several."""
    import ctypes  # not at the start of each command

    return None if sys.platform == "win32" else ctypes.CDLL(None, use_errno=True)


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
