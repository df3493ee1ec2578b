"""Searches of three real nodes, one of which fails: every query gets the same answer as before."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from threading import Thread

import numpy as np
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from keystone.indexing.opensearch.cluster import place_of
from keystone.indexing.opensearch.index import Target
from keystone.retrieval.backends import open_sparse, open_store
from keystone.retrieval.types import Rankings
from tests.support.servers.opensearch import START_TIMEOUT_S, Cluster, Node, call, start_cluster
from tests.support.waiting import join, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

DOCUMENTS, QUERIES, DEPTH = 2_000, 600, 100
FROZEN_S = 20.0
"""The time for which a node is frozen."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """Three nodes."""
    with start_cluster(3) as three:
        yield three


@pytest.fixture(scope="module")
def index(nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Documents of few words in three shards, two copies of each, on three nodes."""
    folder = tmp_path_factory.mktemp("three")
    random = np.random.default_rng(3)
    with (folder / "corpus.jsonl").open("w") as corpus:
        for number in range(DOCUMENTS):
            words = " ".join(f"word{word}" for word in random.zipf(1.3, 40) % 5_000)
            corpus.write(json.dumps({"_id": f"d{number:06d}", "title": "", "text": words}) + "\n")
    target = Target(place_of(f"{','.join(nodes.urls)}/three"), shards=3, replicas=1)
    made = build_index(folder / "corpus.jsonl", folder / "index", BuildSettings(embedding=None, opensearch=target))[0]
    nodes.ready()
    return made


def questions() -> list[str]:
    random = np.random.default_rng(4)
    return [" ".join(f"word{word}" for word in random.zipf(1.3, 8) % 5_000) for _ in range(QUERIES)]


def found(index: Index, when: Callable[[int], None] = lambda _: None) -> Rankings:
    asked = questions()
    return open_sparse(index, open_store(index)).search([str(i) for i in range(QUERIES)], asked, DEPTH, tick=when)


@pytest.fixture(scope="module")
def expected(index: Index) -> Rankings:
    """The rankings of an undisturbed cluster."""
    undisturbed = found(index)
    assert len(undisturbed.docs) > 10 * QUERIES
    return undisturbed


def same(one: Rankings, other: Rankings) -> bool:
    return np.array_equal(one.docs, other.docs) and np.array_equal(one.scores, other.scores)


class Falls:
    """Disturbs the cluster once, after answers to a fifth of the queries."""

    def __init__(self, what: Callable[[], None]) -> None:
        self.what, self.answered, self.fallen_at = what, 0, 0

    def __call__(self, answered: int) -> None:
        self.answered += answered
        if not self.fallen_at and self.answered >= QUERIES // 5:
            self.fallen_at = self.answered
            self.what()


@pytest.mark.parametrize("number", [3, 1], ids=["another node", "the node that leads"])
def test_every_query_is_answered_when_a_node_is_killed_in_the_middle(
    number: int, nodes: Cluster, index: Index, expected: Rankings
) -> None:
    falling = nodes.nodes[number - 1]
    falls = Falls(falling.kill)
    try:
        answered = found(index, falls)
        assert same(answered, expected)
        assert 0 < falls.fallen_at < QUERIES
        assert same(found(index), expected), "a cluster of two nodes answers as one of three"
    finally:
        again(nodes, falling)


def test_every_query_is_answered_when_a_node_freezes_in_the_middle(
    nodes: Cluster, index: Index, expected: Rankings
) -> None:
    frozen = nodes.nodes[1]

    def thaw() -> None:
        time.sleep(FROZEN_S)
        frozen.signal(signal.SIGCONT)

    thawing = Thread(target=thaw)

    def freeze() -> None:
        frozen.signal(signal.SIGSTOP)
        thawing.start()

    falls = Falls(freeze)
    try:
        assert same(found(index, falls), expected)
        assert 0 < falls.fallen_at < QUERIES
    finally:
        join(thawing, "the node to go on")
    nodes.ready()


def test_documents_come_from_the_remaining_nodes(nodes: Cluster, index: Index) -> None:
    store = open_store(index)
    expected = list(store)
    falling = nodes.nodes[1]
    falling.kill()
    try:
        assert list(store) == expected
        assert store.ids(range(DOCUMENTS)) == [document.id for document in expected]
    finally:
        again(nodes, falling)


def again(nodes: Cluster, fallen: Node) -> None:
    """Start a node again at its old address, and wait until every shard has all its copies."""
    left = [node for node in nodes.nodes if node.process]
    fallen.settings["discovery.seed_hosts"] = ",".join(f"127.0.0.1:{node.settings['transport.port']}" for node in left)
    fallen.settings.pop("cluster.initial_cluster_manager_nodes", None)
    fallen.launch()
    wait_until(fallen.answers, "the node to answer again", START_TIMEOUT_S)
    call(left[0].http, "POST", "/_cluster/reroute?retry_failed=true")
    nodes.ready()
