"""Running the command `keystone` in tests."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import programs
from tests.support.processes import start, wait
from tests.support.waiting import LIMIT_S


def keystone(
    *arguments: str | Path, cwd: Path | None = None, code: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, which begins at the start where an environment is given.

    Without an environment, `code` is Python that is run before. One that hangs is ended, with the stacks of its threads
    on standard error.
    """
    if environment:
        return programs.run(
            [sys.executable, "-m", "keystone.runs.cli.main", *map(str, arguments)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd=cwd,
            env={**os.environ, "NO_COLOR": "1", **environment},
        )
    with TemporaryDirectory() as folder:
        streams = Path(folder, "out"), Path(folder, "err")
        pid = start(*arguments, cwd=cwd, out=str(streams[0]), err=str(streams[1]), code=code)
        status = wait(LIMIT_S)
        if status is None:
            os.kill(pid, signal.SIGABRT)
            status = wait(LIMIT_S) or -signal.SIGABRT
        out, err = (stream.read_text(errors="replace") for stream in streams)
    return subprocess.CompletedProcess([*map(str, arguments)], status, out, err)
