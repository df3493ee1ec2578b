"""An interrupt ends a process in time, whatever its threads are at."""

import signal
import subprocess
import sys
import time
from pathlib import Path

CODE = """if True:
    import sys, time
    from concurrent.futures import ThreadPoolExecutor
    from indexing.interrupts import interrupts_end_the_process

    with interrupts_end_the_process(0.5), ThreadPoolExecutor(1) as pool:
        print("begun", flush=True)
        pool.submit(time.sleep, 60).result()
"""


def test_a_thread_that_computes_is_not_waited_for() -> None:
    root = Path(__file__).parents[1]
    with subprocess.Popen([sys.executable, "-c", CODE], cwd=root, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert time.monotonic() - began < 10


def test_an_interrupt_after_the_block_is_as_always() -> None:
    code = CODE.replace("pool.submit(time.sleep, 60).result()", "pass") + "    time.sleep(60)\n"
    root = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT
        assert b"KeyboardInterrupt" in process.stderr.read()
