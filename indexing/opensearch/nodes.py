"""The nodes among which loads and searches are shared: those of the user's URLs, or all that opensearch-py finds.

Keystone looks for further nodes only if `OPENSEARCH_SNIFF` is true. Behind a proxy, in a cloud service or in a
container, nodes publish addresses that nobody can reach. Each of them costs the time of a connection. They would also
be sent credentials, although the user has not named them.
"""

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.retry import PATIENCE_S
from keystone.indexing.opensearch.cluster import Node, Request, as_expected, close, connect
from keystone.indexing.opensearch.requests import NODE_REQUESTS, administer, ask

SNIFF = "OPENSEARCH_SNIFF"
"""The environment variable that has Keystone look for all nodes of a cluster: true or false."""
MEET_PATIENCE_S = 10.0
"""The time for which Keystone goes on asking a busy node to which cluster it belongs."""

_log = logging.getLogger(__name__)


def connect_to_all(urls: Sequence[str]) -> list[Node]:
    """Connect to the nodes at these URLs or, if `OPENSEARCH_SNIFF` is true, to all nodes of their cluster.

    A node that does not answer at the address that it publishes is left out, with a warning. If no node does, those of
    the URLs remain. `UserError` as from `connect`, for another value of the variable, and for a refused list of nodes.
    """
    sniffs = reads_true(SNIFF)
    nodes = connect(urls, NODE_REQUESTS * len(urls))
    if not sniffs:
        return nodes
    try:
        cluster = _read_cluster(nodes, PATIENCE_S)
        found = [f"{urls[0].partition(':')[0]}://{host['host']}:{host['port']}" for host in sniff(nodes)]
        with ThreadPoolExecutor(max(1, len(found))) as pool:
            meet = partial(_meet, cluster=cluster, at_once=NODE_REQUESTS * len(found))
            met = [node for node in pool.map(meet, found) if node]
    except BaseException:
        close(nodes)
        raise
    if not met:
        _log.warning("%s: no node answers at an address that it publishes: only %s is used", SNIFF, ", ".join(urls))
        return nodes
    close(nodes)
    return met


def sniff(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Ask a cluster for its nodes; returns `host` and `port` of each, as opensearch-py reads them.

    opensearch-py leaves out nodes that only manage the cluster. `ClusterRefused` if the cluster does not tell its
    nodes, `MissingPackage` if opensearch-py is not installed.
    """
    cluster = administer(nodes)
    import opensearchpy

    class Sniffer(opensearchpy.Transport):
        """The transport whose connections are Keystone's own, so that it only reads the addresses."""

        def _get_sniff_data(self, *_: Any) -> Any:
            return list(cluster.nodes.info(metric="http")["nodes"].values())

        def set_connections(self, hosts: Any) -> None:
            self.hosts = hosts

    with as_expected(nodes[0].url):
        try:
            found: list[dict[str, Any]] = Sniffer(None, sniff_on_start=True).hosts
        except opensearchpy.TransportError:  # no node publishes an address
            return []
        return found


def _meet(url: str, cluster: str, at_once: int) -> Node | None:
    """Connect to a node; None, after a warning, if it does not answer or belongs to another cluster."""
    nodes = list[Node]()
    try:
        nodes = connect([url], at_once)
        if (found := _read_cluster(nodes, MEET_PATIENCE_S)) == cluster:
            return nodes[0]
        raise UserError(f"{url}: belongs to cluster {found}, expected {cluster}")
    except UserError as error:
        close(nodes)
        _log.warning("%s: a node of the cluster is left out: %s", SNIFF, error)
        return None


def _read_cluster(nodes: Sequence[Node], patience_s: float) -> str:
    answered = ask(nodes, Request("GET", "/"), patience_s).checked()
    with as_expected(nodes[0].url):
        return str(answered["cluster_uuid"])


def reads_true(variable: str) -> bool:
    """Tell whether an environment variable is true. `UserError` if it is neither true nor false, nor empty."""
    value = os.environ.get(variable, "").lower()
    if value not in ("", "true", "false"):
        raise UserError(f"{variable}: found {value!r}, expected true or false")
    return value == "true"
