"""Real vLLM servers on a CPU. A server is ready when a test gets it; at the end all its processes are gone."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from tests.support import programs
from tests.support.places import ROOT, require
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

ENVIRONMENT = ROOT / ".venv-vllm"
PYTHON = ENVIRONMENT / "bin/python"
TINY_MODEL = ENVIRONMENT / "tiny"
CONFINING_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_CACHE_ROOT": str(ENVIRONMENT / "cache"),
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else every server runs on the first core
    "OMP_NUM_THREADS": "1",
}
"""Keep vLLM on this machine, and on one thread."""
SMALL_OPTIONS = ["--enforce-eager", "--kv-cache-memory-bytes", "64M"]
STRUCTURED_OUTPUTS = '{"backend":"guidance","disable_any_whitespace":true}'
CHAT_OPTIONS = [
    *("--dtype", "bfloat16", *SMALL_OPTIONS, "--max-num-seqs", "32", "--enable-prompt-tokens-details"),
    *("--structured-outputs-config", STRUCTURED_OUTPUTS),
]
EMBEDDING_OPTIONS = ["--runner", "pooling", "--dtype", "float32", *SMALL_OPTIONS, "--max-num-seqs", "64"]
START_TIMEOUT_S = 600.0
"""A start takes about 25 seconds on a quiet machine, and has taken 120 on a busy one."""
STOP_TIMEOUT_S = 10.0
"""A server must end by itself within this time."""


def needs_vllm() -> None:
    """If vLLM is not set up, skip the test; on CI, fail it."""
    require(ENVIRONMENT, "`make test`")


@dataclass
class Server:
    """A `vllm serve` on a port of its own, which it keeps when it is started again."""

    name: str
    model: Path
    options: list[str]
    port: int = field(default_factory=free_port)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="vllm-")))
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    def launch(self) -> None:
        """Start the server and do not wait."""
        what = ["serve", str(self.model), "--served-model-name", self.name, *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = launch(
                "vllm", *what, "--host", "127.0.0.1", "--port", str(self.port), folder=self.folder, log=log
            )

    def ready(self) -> None:
        """Wait until the server answers."""
        try:
            wait_until(lambda: self.answers() or self.ended(), f"{self.name} of vLLM to answer", START_TIMEOUT_S)
            assert not self.ended(), f"{self.name} of vLLM has ended"
        except AssertionError as error:
            error.add_note(last_words(self.folder))
            raise

    def ended(self) -> bool:
        """Whether there is no process that could answer."""
        return self.process is None or self.process.poll() is not None

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def metric(self, name: str) -> float:
        """A counter of the server, summed over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))

    def stop(self, patience: float = STOP_TIMEOUT_S) -> None:
        """End the server: ask it to end, wait, then kill all its processes."""
        if self.process:
            end(self.process, patience)
        self.process = None

    def kill(self) -> None:
        """End the server without asking it."""
        self.stop(patience=0)

    def end_engine(self) -> None:
        """End the engine, which ends the server after a while. The server answers open requests with `abort`.

        A server that is asked to end kills its engine at once, often before it can say so, and waits for replies.
        """
        for name in Path("/proc").glob("[0-9]*/comm"):
            with contextlib.suppress(OSError):
                process = int(name.parent.name)
                if self.process and os.getpgid(process) == self.process.pid and "EngineCor" in name.read_text():
                    os.kill(process, signal.SIGTERM)


def launch(program: str, *arguments: str | Path, folder: Path, log: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """A program of vLLM's environment in a group of processes of its own; `folder` is for what it leaves in files."""
    return programs.start(
        [ENVIRONMENT / "bin" / program, *arguments],
        env={**os.environ, **CONFINING_VARIABLES, "PYTHONPATH": str(ENVIRONMENT.parent), "TMPDIR": str(folder)},
        stdout=log,
        stderr=subprocess.STDOUT,
    )


def end(process: subprocess.Popen[bytes], patience: float) -> None:
    """Ask a program to end; after `patience` seconds, kill its group. Its shared memory is removed, too."""
    left = shared_memory(process.pid)
    if patience and process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    programs.kill(process)
    for path in left:
        path.unlink(missing_ok=True)


def run(program: str, *arguments: str | Path, folder: Path) -> None:
    """Run a program of vLLM's environment, which must succeed."""
    needs_vllm()
    with (folder / "log").open("wb") as log, tempfile.TemporaryDirectory(prefix="vllm-") as left:
        process = launch(program, *arguments, folder=Path(left), log=log)  # whose name is short, as those of sockets
        try:
            code = process.wait(2 * START_TIMEOUT_S)
        finally:
            end(process, patience=0)
    if code:
        pytest.fail(f"{program} ended with {code}:\n{last_words(folder)}")


def last_words(folder: Path) -> str:
    """Read the last output of a program in that folder."""
    return (folder / "log").read_text(errors="replace")[-4000:]


def shared_memory(group: int) -> set[Path]:
    """The files in shared memory that processes of a group have open, under whichever name they are there now."""
    nodes = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(maps.parent.name)) == group:
                mapped = [line.split() for line in maps.read_text().splitlines() if "/dev/shm/" in line]
                nodes |= {int(node) for _, _, _, _, node, *_ in mapped}
    with os.scandir("/dev/shm") as entries:  # others may remove their files meanwhile, so no file is asked
        return {Path(entry.path) for entry in entries if entry.inode() in nodes}


@contextlib.contextmanager
def started(name: str, model: Path, options: list[str]) -> Iterator[Server]:
    """Start a server; gives it when it answers, and ends it with the block."""
    needs_vllm()
    server = Server(name, model, options)
    try:
        server.launch()
        server.ready()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)
