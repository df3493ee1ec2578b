"""Programs that tests start, each in its own process group. The group ends when the tests end in any way."""

import contextlib
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tests.support.places import ROOT
from tests.support.waiting import LIMIT_S

Argument = str | bytes | Path

_TIED = [sys.executable, "-I", "-S", str(Path(__file__).with_name("tied.py"))]


def start(command: Sequence[Argument], **options: Any) -> "subprocess.Popen[Any]":
    """Start a program with the options of `subprocess.Popen`. Its group also ends when the object is deleted."""
    pipe, held = os.pipe()
    try:
        process = subprocess.Popen([*_TIED, str(pipe), *command], pass_fds=[pipe], start_new_session=True, **options)
    except BaseException:
        os.close(held)
        raise
    finally:
        os.close(pipe)
    weakref.finalize(process, os.close, held)
    return process


def start_apart(command: Sequence[Argument], source: IO[bytes], log: IO[bytes]) -> "subprocess.Popen[Any]":
    """Start a program that may outlive this process. It has to end by itself when `source`, its input, ends."""
    return subprocess.Popen(
        command, cwd=ROOT, stdin=source, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def kill(process: "subprocess.Popen[Any]") -> None:
    """Kill a program and all processes of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(LIMIT_S)


@contextlib.contextmanager
def started(command: Sequence[Argument], **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """A program that is killed, with its group, at the end of the block."""
    with start(command, **options) as process:
        try:
            yield process
        finally:
            kill(process)


def run(
    command: Sequence[Argument], *, input: Any = None, check: bool = False, seconds: float = LIMIT_S, **options: Any
) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run` with a deadline: a program that runs longer is killed and fails the test."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(command, **options) as process:
        try:
            out, err = process.communicate(input, timeout=seconds)
        except subprocess.TimeoutExpired:
            kill(process)
            said = process.communicate(timeout=LIMIT_S)
            raise AssertionError(f"waited {seconds:g} s in vain for the end of {command}, which said {said}") from None
    done = subprocess.CompletedProcess([*command], process.returncode, out, err)
    if check:
        done.check_returncode()
    return done
