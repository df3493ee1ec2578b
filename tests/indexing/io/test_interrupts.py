"""An interrupt ends a process in time, whatever its threads do."""

import signal
import subprocess
import sys

import pytest

from tests.support.places import ROOT
from tests.support.programs import started
from tests.support.waiting import LIMIT_S, within

CODE = """if True:
    import sys, time
    from concurrent.futures import ThreadPoolExecutor
    from keystone.indexing.io.system import interrupts_end_the_process

    with interrupts_end_the_process(0.5), ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: (print("begun", flush=True), time.sleep(600))).result()
"""


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_a_computing_thread() -> None:
    root = ROOT
    with started([sys.executable, "-c", CODE], cwd=root, stdout=subprocess.PIPE) as process:
        assert process.stdout
        within(process.stdout.readline, "the thread to begin")
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130


def test_after_the_block_an_interrupt_raises_keyboardinterrupt_again() -> None:
    code = (
        CODE.replace('print("begun", flush=True), time.sleep(600)', "")
        + """
    print("begun", flush=True)
    time.sleep(600)
"""
    )
    root = ROOT
    with started([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        within(process.stdout.readline, "the block to end")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == -signal.SIGINT
        assert b"KeyboardInterrupt" in said
