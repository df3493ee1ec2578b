"""Real OpenSearch nodes for tests: a cluster is green when it is given out, gone for certain afterwards."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

JARS = Path(__file__).parents[1] / ".opensearch"
MAIN = "3.5.0"
OLDER = "2.19.1"
"""The server whose BM25 scores are k1 + 1 times Lucene's, and which has a fusion of its own."""
READY = 300.0
"""Seconds: a start takes about 10 on a quiet machine, of three nodes about 25."""


def needs_opensearch() -> None:
    """Skip the test where OpenSearch is not set up; fail where it must be."""
    if not (JARS / ".ready").exists():
        missing = f"{JARS} is not set up: run `make test-opensearch`, which needs Maven"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)


@dataclass
class Node:
    """A node, in a group of processes of its own; `folder` has its data, its logs and its ports."""

    version: str
    settings: dict[str, str]
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def http(self) -> str:
        """Its HTTP address."""
        return f"http://{self.address('http')}"

    def launch(self) -> None:
        """Start the node and do not wait; one that is started again listens where it did."""
        for kind in ("http", "transport"):
            ports = self.folder / f"logs/{kind}.ports"
            if ports.exists():
                self.settings[f"{kind}.port"] = ports.read_text().split()[0].rsplit(":", 1)[1]
                ports.unlink()
        settings = [f"{name}={value}" for name, value in self.settings.items()]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.opensearch_node", JARS / self.version, *settings],
                cwd=JARS.parent,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def address(self, kind: str) -> str:
        """Where the node listens for `http` or `transport`; waits until it does."""
        file, until = self.folder / f"logs/{kind}.ports", time.monotonic() + READY
        while not (file.exists() and file.read_text().strip()):
            self.must_run(time.monotonic() < until)
            time.sleep(0.05)
        return file.read_text().split()[0]

    def must_run(self, in_time: bool) -> None:
        """Fail the test, with what the node has said, where it has ended or its time is over."""
        ended = self.process is None or self.process.poll() is not None
        if ended or not in_time:
            what = "has ended" if ended else f"was not ready in {READY:.0f} s"
            pytest.fail(f"OpenSearch {what}:\n{(self.folder / 'log').read_text(errors='replace')[-4000:]}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGSTOP freezes the node, SIGCONT lets it go on."""
        assert self.process
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """End the node without a word."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            self.process.wait()
            assert self.process.stdin
            self.process.stdin.close()
        self.process = None


@dataclass
class Cluster:
    """Some nodes of one version that know each other."""

    version: str
    nodes: list[Node] = field(default_factory=list)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="opensearch-")))

    @property
    def url(self) -> str:
        """The address of the first node."""
        return self.nodes[0].http

    @property
    def urls(self) -> list[str]:
        """The addresses of all nodes."""
        return [node.http for node in self.nodes]

    def launch(self, size: int) -> None:
        """Start the nodes; the first one leads, and later ones are told where it is."""
        for number in range(1, size + 1):
            home = self.folder / str(number)
            (home / "logs").mkdir(parents=True)
            settings = {
                "cluster.name": self.folder.name,
                "node.name": f"node-{number}",
                "node.portsfile": "true",
                "network.host": "127.0.0.1",
                "http.port": "0",
                "transport.port": "0",
                "path.home": str(home),
                "path.logs": str(home / "logs"),
                "cluster.routing.allocation.disk.threshold_enabled": "false",
            }
            if size == 1:
                settings["discovery.type"] = "single-node"
            else:
                first = self.nodes[0].address("transport") if self.nodes else ""
                settings |= {"node.processors": "1", "discovery.seed_hosts": first}
                settings |= {} if first else {"cluster.initial_cluster_manager_nodes": "node-1"}
            self.nodes.append(Node(self.version, settings, home))
            self.nodes[-1].launch()

    def ready(self) -> None:
        """Wait until every node is in the cluster and every shard has all its copies."""
        until = time.monotonic() + READY
        running = [node for node in self.nodes if node.process]
        for node in running:
            while not self._green(node, len(running)):
                node.must_run(time.monotonic() < until)
                time.sleep(0.1)

    def _green(self, node: Node, size: int) -> bool:
        try:
            health = call(node.http, "GET", f"/_cluster/health?wait_for_status=green&wait_for_nodes={size}&timeout=5s")
        except OSError:
            return False
        return bool(health["status"] == "green" and health["number_of_nodes"] == size)

    def stop(self) -> None:
        """End all nodes; what they have stored goes too."""
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def call(url: str, method: str, path: str, body: Any = None) -> Any:
    """The JSON that a node answers; a list is sent as lines. `OSError` where it does not answer or refuses."""
    lines = isinstance(body, list)
    data = "".join(f"{json.dumps(line)}\n" for line in body) if lines else json.dumps(body) if body is not None else ""
    request = urllib.request.Request(url + path, data.encode() or None, method=method)
    request.add_header("Content-Type", "application/x-ndjson" if lines else "application/json")
    with urllib.request.urlopen(request, timeout=READY) as reply:
        return json.load(reply)


@contextlib.contextmanager
def cluster(size: int = 1, version: str = MAIN) -> Iterator[Cluster]:
    """So many nodes of a version from the moment the cluster is green, gone at the end."""
    needs_opensearch()
    nodes = Cluster(version)
    try:
        nodes.launch(size)
        nodes.ready()
        yield nodes
    finally:
        nodes.stop()
