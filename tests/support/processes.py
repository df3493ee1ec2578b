"""The command line in processes of its own, forked from one that is prepared for them.

A command then takes as long as its work, without the seconds for imports, the embedding model and Numba. The first
process starts no thread and no Java. It reads one job per line, and answers with the id of the forked process, then
with its exit code.
"""

import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from math import ceil
from pathlib import Path
from random import Random
from select import select
from tempfile import NamedTemporaryFile

from tests.support import programs
from tests.support.mutation import FUZZ_CASES
from tests.support.places import ROOT
from tests.support.waiting import LIMIT_S

IMPORTED_MODULES = """faiss rich.progress rich.table scipy.stats tokenizers onnx onnxruntime typer.rich_utils yaml
keystone.generation.llm.endpoints keystone.generation.readers.plain keystone.indexing.builds.index
keystone.indexing.vectors.faiss_index keystone.indexing.lucene.write keystone.indexing.encoders.dense
keystone.indexing.vectors.shards keystone.runs.cli.main keystone.runs.evaluation.evaluate keystone.runs.evaluation.tune
keystone.runs.pipeline.run keystone.runs.report.terminal keystone.runs.tracks.validate
keystone.runs.trec.fuse_files""".split()


def start(
    *arguments: str | Path, cwd: Path | None = None, out: str = os.devnull, err: str = os.devnull, code: str = ""
) -> int:
    """Start a command, one at a time, whose streams go to the files `out` and `err`; returns its process id.

    `code` is Python that is run before. A command whose end nobody has seen is killed before.
    """
    if _unseen:
        programs.kill(_start_source())
        _start_source.cache_clear()
    _unseen.append(True)
    job = [list(map(str, arguments)), str(cwd or Path.cwd()), out, err, code]
    source = _start_source()
    assert source.stdin
    source.stdin.write(json.dumps(job).encode() + b"\n")  # file names need not be UTF-8, which orjson wants
    pid = _answer(LIMIT_S)
    assert pid is not None, f"waited {LIMIT_S:g} s in vain for a process to be forked"
    return pid


def wait(seconds: float) -> int | None:
    """The exit code of the command, negative for a signal; None if it still runs after this time."""
    code = _answer(seconds)
    if code is not None:
        _unseen.clear()
    return code


def _answer(seconds: float) -> int | None:
    source = _start_source()
    assert source.stdout
    return int(source.stdout.readline()) if select([source.stdout], [], [], seconds)[0] else None


def run_with_kills(*arguments: str | Path, times: int, kills: int, done: Callable[[], None], code: str = "") -> None:
    """Run a command to its end, then `times` times with a kill at a random moment, then to its end again.

    After each run that came to its end, `done` compares what it made and removes it. The moments are within the time
    of the last run that began anew and came to its end. A run that ends before its moment is no kill. If there are
    fewer than `kills`, more runs follow. Both numbers hold for `make nightly`; other test runs make a quarter.
    """
    if not FUZZ_CASES:
        times, kills = ceil(times / 4), ceil(kills / 4)
    chosen, struck, anew, seconds = Random(7), 0, True, LIMIT_S

    def moments() -> Iterator[float | None]:
        yield None
        for number in range(10 * times):
            if number < times or struck < kills:
                yield chosen.random()
        yield None

    with NamedTemporaryFile() as said:
        for share in moments():
            began = time.monotonic()
            said.truncate(0)
            pid = start(*arguments, err=said.name, code=code)
            ended = wait(LIMIT_S if share is None else share * seconds)
            if ended is None:
                assert share is not None, f"waited {LIMIT_S:g} s in vain for the end of {arguments}"
                with suppress(ProcessLookupError):  # a command may end by itself at that moment
                    os.kill(pid, signal.SIGKILL)
                ended = wait(LIMIT_S)
                assert ended is not None, f"waited {LIMIT_S:g} s in vain for the death of {arguments}"
            if killed := ended == -signal.SIGKILL:
                struck += 1
            else:
                assert ended == 0, Path(said.name).read_text()
                seconds = time.monotonic() - began if anew else seconds
                done()
            anew = not killed
    assert struck >= kills


_unseen: list[bool] = []
"""Whether a command has been started whose end nobody has seen."""


@cache
def _start_source() -> "subprocess.Popen[bytes]":
    return programs.start(
        [sys.executable, "-m", "tests.support.processes"],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
    )


def _fork() -> None:
    """Answer jobs until there are no more. In each forked process, return, so that it runs its command."""
    _prepare()
    for line in sys.stdin:
        arguments, cwd, out, err, code = json.loads(line)
        pid = os.fork()
        if not pid:
            os.chdir(cwd)
            for number, (path, mode) in enumerate([(os.devnull, os.O_RDONLY), (out, os.O_WRONLY), (err, os.O_WRONLY)]):
                file = os.open(path, mode | os.O_CREAT)
                os.dup2(file, number)
                os.close(file)
            sys.argv = ["keystone", *arguments]
            exec(code)
            return
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    sys.exit()


def _prepare() -> None:
    """Do once what each command would do again: imports, loading the model, and starting Numba.

    Java starts in each command, because its threads would not outlive a fork. It compiles for a short life.
    """
    for name in IMPORTED_MODULES:
        importlib.import_module(name)
    import jnius_config

    from keystone.indexing.types import MINILM
    from keystone.indexing.vectors.embed import load_model
    from keystone.runs.cli.table import build_command, list_names
    from keystone.runs.trec.doc_ids import encode_ids

    for name in list_names():
        build_command(name)
    load_model(MINILM)
    encode_ids(["1"]).find_distinct()  # loads the first kernel
    jnius_config.add_options("-XX:TieredStopAtLevel=1")


def _run() -> int:
    from keystone.runs.cli.main import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    faulthandler.enable()
    _fork()
    code = _run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking down what was imported takes seconds
