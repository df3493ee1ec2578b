"""All nodes of a cluster are found from one URL, share loads and searches, and are left out if they do not answer."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.opensearch.cluster import KEY, PASSWORD, USER, Node, Request, close, place_of
from keystone.indexing.opensearch.index import Target
from keystone.indexing.opensearch.nodes import SNIFF, connect_to_all
from keystone.retrieval.backends import open_sparse, open_store
from tests.support.servers.opensearch import Cluster, start_cluster
from tests.support.servers.opensearch_keeper import State, start_keeper
from tests.support.servers.ports import free_port

DOCUMENTS, QUERIES = 3_000, 600


@pytest.fixture
def sniffing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SNIFF, "true")


def connected(*urls: str) -> list[str]:
    """The URLs of the nodes that would share requests."""
    nodes = connect_to_all(urls)
    close(nodes)
    return [node.url for node in nodes]


@pytest.mark.usefixtures("sniffing")
def test_each_node_that_answers_is_found_from_the_url_of_one() -> None:
    with start_keeper() as (state, first), start_keeper(state) as (_, second):
        port = second.rpartition(":")[2]
        state.published += [first.removeprefix("http://"), f"localhost/127.0.0.1:{port}"]
        assert connected(first) == [first, f"http://localhost:{port}"]


@pytest.mark.parametrize("value", ["", "false"])
def test_nodes_are_not_looked_for_unless_the_user_asks(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SNIFF, value)
    with start_keeper() as (state, first), start_keeper(state) as (_, second):
        state.published += [first.removeprefix("http://"), second.removeprefix("http://")]
        assert connected(first) == [first]
        assert all("_nodes" not in path for _, path in state.requests)


def test_another_value_of_the_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SNIFF, "maybe")
    with pytest.raises(UserError, match=f"^{SNIFF}: found 'maybe', expected true or false$"):
        connect_to_all(["http://127.0.0.1:9"])


@pytest.mark.usefixtures("sniffing")
def test_a_dead_address_and_another_cluster_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    dead = f"127.0.0.1:{free_port()}"
    with start_keeper() as (state, first), start_keeper(State()) as (_, stranger):
        state.published += [first.removeprefix("http://"), dead, stranger.removeprefix("http://")]
        assert connected(first) == [first]
    assert re.search(f"a node of the cluster is left out: http://{dead}: cannot be reached", caplog.text)
    assert re.search(f"left out: {stranger}: belongs to cluster cluster-[0-9]+, expected cluster-[0-9]+", caplog.text)


@pytest.mark.usefixtures("sniffing")
@pytest.mark.parametrize("published", [[], ["127.0.0.1:9"]], ids=["no address", "addresses behind a proxy"])
def test_the_users_own_url_remains_if_no_other_address_answers(
    published: Sequence[str], caplog: pytest.LogCaptureFixture
) -> None:
    with start_keeper(State(published=list(published))) as (_, proxy):
        assert connected(proxy) == [proxy]
    assert f"no node answers at an address that it publishes: only {proxy} is used" in caplog.text


@pytest.mark.usefixtures("sniffing")
def test_credentials_do_not_go_to_an_address_that_others_can_listen_to(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(USER, "reader")
    monkeypatch.setenv(PASSWORD, "secret")
    monkeypatch.delenv(KEY, raising=False)
    with start_keeper(State(published=["192.0.2.1:9200"])) as (_, url):
        assert connected(url) == [url]
    assert "http://192.0.2.1:9200: credentials are sent by https or within this machine only" in caplog.text


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    """Two nodes of one cluster."""
    with start_cluster(2) as nodes:
        yield nodes


def count_requests(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The paths that each node is asked for from now on, by its URL."""
    asked: dict[str, list[str]] = {}
    original = Node.ask

    def ask(node: Node, request: Request) -> object:
        asked.setdefault(node.url, []).append(request.path)
        return original(node, request)

    monkeypatch.setattr(Node, "ask", ask)
    return asked


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.usefixtures("sniffing")
def test_two_real_nodes_share_a_load_and_searches_and_one_goes_on_without_the_other(
    two: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"_id": f"d{n:05}", "text": " ".join(f"w{n % part}" for part in range(2, 300))} for n in range(DOCUMENTS)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = count_requests(monkeypatch)
    target = Target(place_of(f"{two.url}/shared"), shards=2, replicas=1)
    index, _ = build_index(
        tmp_path / "corpus.jsonl", tmp_path / "index", BuildSettings(embedding=None, opensearch=target)
    )
    two.ready()
    assert {url for url in asked if any(path.endswith("/_bulk") for path in asked[url])} == set(two.urls)
    assert index.at["url"] == two.url, "the index keeps the URL of the user"

    questions = [f"w{n % 7} w{n % 31} w{n % 290}" for n in range(QUERIES)]
    sparse, numbers, answered = open_sparse(index, open_store(index)), [str(n) for n in range(QUERIES)], 0
    asked.clear()
    expected = sparse.search(numbers, questions, 100)
    assert {url for url in asked if any(path.endswith("/_msearch") for path in asked[url])} == set(two.urls)

    def fall(done: int) -> None:
        nonlocal answered
        answered += done
        if answered >= QUERIES // 5 and two.nodes[1].process:
            two.nodes[1].kill()

    found = sparse.search(numbers, questions, 100, tick=fall)
    assert two.nodes[1].process is None
    assert (found.docs.tolist(), found.scores.tolist()) == (expected.docs.tolist(), expected.scores.tolist())
    assert connected(two.url) == [two.url], "the node that fell is left out of the next run"
