"""Real OpenSearch nodes for tests. A cluster is green when a test gets it; at the end all its processes are gone."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import programs
from tests.support.places import ROOT, require
from tests.support.servers.ports import free_port
from tests.support.servers.shared import share_server
from tests.support.waiting import wait_until

JARS = ROOT / ".opensearch"
MAIN_VERSION = "3.5.0"
OLDER_VERSION = "2.19.1"
"""A version whose BM25 scores are k1 + 1 times Lucene's, and which has its own fusion."""
START_TIMEOUT_S = 600.0
"""A start takes about 10 seconds on a quiet machine, a start of three nodes about 25."""
ANSWER_TIMEOUT_S = 60.0
"""A node must answer a request within this time."""


def needs_opensearch() -> None:
    """If OpenSearch is not set up, skip the test; on CI, fail it."""
    require(JARS, "`make test-opensearch`, which needs Maven")


@dataclass
class Node:
    """A node in its own process group; `folder` holds its data and logs."""

    version: str
    settings: dict[str, str]
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def http(self) -> str:
        """Its HTTP address."""
        return f"http://127.0.0.1:{self.settings['http.port']}"

    def launch(self) -> None:
        """Start the node without waiting. A node that is started again listens at its old address."""
        settings = [f"{name}={value}" for name, value in self.settings.items()]
        with (self.folder / "log").open("ab") as log:
            self.process = programs.start(
                [sys.executable, "-m", "tests.support.servers.opensearch_node", JARS / self.version, *settings],
                cwd=JARS.parent,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def ready(self, size: int) -> None:
        """Wait until the node sees `size` nodes in the cluster, and all copies of every shard."""
        try:
            wait_until(
                lambda: self._green(size) or self.ended(), f"OpenSearch to be green at {self.http}", START_TIMEOUT_S
            )
            assert not self.ended(), "a node of OpenSearch has ended"
        except AssertionError as error:
            error.add_note((self.folder / "log").read_text(errors="replace")[-4000:])
            raise

    def ended(self) -> bool:
        """Whether the node's process has ended."""
        return self.process is None or self.process.poll() is not None

    def answers(self) -> bool:
        """Whether the node answers, ready or not."""
        try:
            return bool(call(self.http, "GET", "/"))
        except OSError:
            return False

    def _green(self, size: int) -> bool:
        try:
            health = call(self.http, "GET", f"/_cluster/health?wait_for_status=green&wait_for_nodes={size}&timeout=5s")
        except OSError:
            return False
        return bool(health["status"] == "green" and health["number_of_nodes"] == size)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGSTOP freezes the node, SIGCONT lets it continue."""
        assert self.process
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kill the node."""
        if self.process:
            programs.kill(self.process)
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
        """Start the nodes; the first one leads, and the others get its address."""
        for number in range(1, size + 1):
            home = self.folder / str(number)
            (home / "logs").mkdir(parents=True)
            settings = {
                "cluster.name": self.folder.name,
                "node.name": f"node-{number}",
                "network.host": "127.0.0.1",
                "http.port": str(free_port()),
                "transport.port": str(free_port()),
                "path.home": str(home),
                "path.logs": str(home / "logs"),
                "path.repo": str(home / "snapshots"),
                "cluster.routing.allocation.disk.threshold_enabled": "false",
            }
            if size == 1:
                settings["discovery.type"] = "single-node"
            else:
                first = f"127.0.0.1:{self.nodes[0].settings['transport.port']}" if self.nodes else ""
                settings |= {"node.processors": "1", "discovery.seed_hosts": first}
                settings |= {} if first else {"cluster.initial_cluster_manager_nodes": "node-1"}
            self.nodes.append(Node(self.version, settings, home))
            self.nodes[-1].launch()

    def ready(self) -> None:
        """Wait until every node is in the cluster and every shard has all its copies."""
        running = [node for node in self.nodes if node.process]
        for node in running:
            node.ready(len(running))

    def stop(self) -> None:
        """End all nodes and remove their data."""
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def call(url: str, method: str, path: str, body: Any = None) -> Any:
    """The JSON that a node answers; a list is sent as lines. `OSError` if the node does not answer, or refuses."""
    lines = isinstance(body, list)
    data = "".join(f"{json.dumps(line)}\n" for line in body) if lines else json.dumps(body) if body is not None else ""
    request = urllib.request.Request(url + path, data.encode() or None, method=method)
    request.add_header("Content-Type", "application/x-ndjson" if lines else "application/json")
    with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as reply:
        return json.load(reply)


@contextlib.contextmanager
def start_cluster(size: int = 1, version: str = MAIN_VERSION) -> Iterator[Cluster]:
    """A green cluster of `size` nodes of a version; at the end of the block, all nodes end."""
    needs_opensearch()
    nodes = Cluster(version)
    try:
        nodes.launch(size)
        nodes.ready()
        yield nodes
    finally:
        nodes.stop()


@contextlib.contextmanager
def share_cluster(factory: pytest.TempPathFactory, version: str) -> Iterator[Cluster]:
    """A cluster of one node that all processes of the test run share, so that none of them may end it."""
    needs_opensearch()
    start = f"{__name__}:{keep_cluster.__name__}"
    with share_server(factory, f"opensearch-{version}", start, version) as (settings, home):
        yield Cluster(version, [Node(version, settings, Path(home))], Path(home).parent)


@contextlib.contextmanager
def keep_cluster(version: str) -> Iterator[tuple[dict[str, str], str]]:
    """Start a cluster of one node; gives the settings and the folder of the node."""
    with start_cluster(version=version) as cluster:
        yield cluster.nodes[0].settings, str(cluster.nodes[0].folder)
