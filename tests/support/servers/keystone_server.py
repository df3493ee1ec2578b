"""`keystone serve` as a real process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from tests.support.programs import Argument, started
from tests.support.waiting import within


@dataclass(frozen=True)
class Served:
    process: "Popen[Any]"
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def keystone_server(index: Path, folder: Path, *options: str) -> Iterator[Served]:
    """Serve an index at a free port; the log and the run directory are in `folder`."""
    log = folder / "calls.jsonl"
    command: list[Argument] = [
        sys.executable,
        "-m",
        "keystone.runs.cli.main",
        "serve",
        index,
        "--port",
        "0",
        "--log",
        log,
        *options,
    ]
    errors = folder / "errors.txt"
    with errors.open("wb") as out, started(command, cwd=folder, stdout=PIPE, stderr=out) as process:
        line = within(process.stdout.readline, "keystone serve to listen").decode()  # type: ignore[union-attr]
        assert " is served at http://127.0.0.1:" in line, errors.read_text()
        yield Served(process, int(line.split("http://127.0.0.1:")[1].split(";")[0]), log)


def find_worker(served: Served) -> int:
    """Find the process of the only worker; 0 if the server has none."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == served.process.pid and b"run_worker" in stat.with_name("cmdline").read_bytes():
                return int(stat.parent.name)
    return 0
