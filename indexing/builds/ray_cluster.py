"""A connection to Ray: a cluster that runs already, or a local one, beside the Java of this process."""

import ctypes
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keystone.indexing.builds.interrupts import interrupts_end_the_process
from keystone.indexing.errors import MissingPackage, UserError
from keystone.indexing.io.system import load_c_library
from keystone.indexing.lucene.java import java_class

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch for clusters of several machines. If it is off, Ray listens on 127.0.0.1 alone, under any system."""

JAVAS = [signal.Signals[name] for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE") if hasattr(signal, name)]

REACH_TIMEOUT_S = 10
"""The time in which a cluster must answer."""
START_TRIES = 4
"""How many times a local cluster is started. Ray gives up a start after 30 seconds, which a busy machine can exceed."""


@contextmanager
def cluster(threads: int) -> Iterator[None]:
    """Connect to Ray for the length of a block: an open connection, the cluster at `RAY_ADDRESS`, or a local cluster.

    A local cluster has `threads` CPUs and all GPUs, no dashboard, and listens on 127.0.0.1. If it does not start in
    time, it is started again. `UserError` if Ray is not installed, or if no cluster answers at the address.
    """
    address = os.environ.get("RAY_ADDRESS") or "local"
    if address not in ("local", "auto"):
        _reach(address)
    for name, value in {**QUIET, **({LOOPBACK: "0"} if address == "local" else {})}.items():
        os.environ.setdefault(name, value)
    ray = import_ray()
    if ray.is_initialized():
        yield
        return
    local = {"num_cpus": threads, "include_dashboard": False} if address == "local" else {}
    java_class("java.lang.Object")  # starts Java, which sets handlers of signals
    for tries_left in reversed(range(START_TRIES if local else 1)):
        try:
            with _silence(), _keep_handlers():
                ray.init(address, logging_level="ERROR", log_to_driver=False, **local)
            break
        except Exception as error:  # a node that does not start in time raises no narrower type
            if tries_left:
                continue
            found = "Ray cannot be started" if local else f"RAY_ADDRESS: found {address!r}, expected a running cluster"
            raise UserError(f"{found}: {(str(error).strip() or type(error).__name__).splitlines()[0]}") from error
    try:
        with interrupts_end_the_process(0):  # Ray's processes get it too, and without them this one would crash
            yield
    finally:
        with _keep_handlers():
            ray.shutdown()


def import_ray() -> Any:
    """Import Ray. `MissingPackage` if it is not installed."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingPackage("Ray is needed for --engine ray: pip install 'ray[data]'") from error
    return ray


def _reach(address: str) -> None:
    """Raise `UserError` if nothing listens at the address. Ray itself needs minutes to say so."""
    try:
        host, port = address.rsplit(":", 1)
        socket.create_connection((host.strip("[]"), int(port)), REACH_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        expected = "expected HOST:PORT of a running cluster, asked from one of its machines"
        raise UserError(f"RAY_ADDRESS: found {address!r}, {expected}: {error}") from error


@contextmanager
def _keep_handlers() -> Iterator[None]:
    """Restore the handlers of the signals that Java needs: Ray replaces them, and Java would then crash."""
    if (libc := load_c_library()) is None:
        yield
        return
    kept = [(number, ctypes.create_string_buffer(1024)) for number in JAVAS]  # more than a `sigaction` takes anywhere
    for number, action in kept:
        libc.sigaction(number, None, action)
    try:
        yield
    finally:
        for number, action in kept:
            libc.sigaction(number, action, None)


@contextmanager
def _silence() -> Iterator[None]:
    """Write nothing to standard error within the block: Ray's core prints its level of messages there."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
