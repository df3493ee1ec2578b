"""The administration of a cluster by opensearch-py: snapshots, refusals, and what is said without the package."""

import re
import sys
from pathlib import Path

import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import ClusterRefused, MissingPackage, UserError
from keystone.indexing.opensearch.build import adopt_loaded
from keystone.indexing.opensearch.cluster import close, connect, place_of
from keystone.indexing.opensearch.index import Target
from keystone.indexing.opensearch.requests import administer
from keystone.indexing.store import to_record
from keystone.retrieval.backends import open_store
from keystone.runs.doctor.cluster import check_addresses
from tests.support.indexes.small_corpus import write_corpus
from tests.support.places import ROOT
from tests.support.servers.opensearch import Cluster
from tests.support.servers.opensearch_keeper import State, start_keeper, status


@pytest.mark.slow
def test_the_snapshot_of_the_page_restores_an_index_to_its_folders(opensearch: Cluster, tmp_path: Path) -> None:
    place = place_of(f"{opensearch.url}/my-corpus")
    settings = BuildSettings(embedding=None, opensearch=Target(place))
    index, _ = build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", settings)
    expected = [to_record(one) for one in open_store(index)]
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.DOTALL)
    exec(block.replace("http://localhost:9200", opensearch.url), {})
    assert [to_record(one) for one in open_store(index)] == expected
    assert [to_record(one) for one in open_store(adopt_loaded(place, tmp_path / "other")[0])] == expected


def test_a_refusal_has_its_status_and_reason_and_may_be_ignored() -> None:
    with start_keeper() as (_, url):
        nodes = connect([url], 1)
        indices = administer(nodes).indices
        with pytest.raises(
            ClusterRefused, match=rf"^{url}: refused with status 404: .*no such index \[bees\]"
        ) as refused:
            indices.delete(index="bees")
        assert refused.value.status == 404
        indices.delete(index="bees", ignore=404)
        indices.create(index="bees", body={"settings": {}})
        with pytest.raises(ClusterRefused, match="resource_already_exists_exception"):
            indices.create(index="bees", body={"settings": {}})
        close(nodes)


def test_a_cluster_that_stays_busy_is_named_after_the_patience() -> None:
    with start_keeper(State(always=status(429))) as (_, url):
        nodes = connect([url], 1)
        with pytest.raises(UserError, match=f"{url}: 429.*; nothing has succeeded for 0.1 s"):
            administer(nodes, 0.1).transport.perform_request("POST", "/bees/_bulk", body={})
        close(nodes)


def test_a_load_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opensearchpy", None)
    with pytest.raises(MissingPackage, match=r"pip install 'keystone-rag\[opensearch\]'"):
        administer([])


@pytest.mark.parametrize(
    ("urls", "addresses", "said"),
    [
        (1, ["10.0.0.2:9200", "10.0.0.1:9200"], "names one of 2: 10.0.0.1:9200, 10.0.0.2:9200."),
        (2, ["10.0.0.2:9200", "10.0.0.1:9200"], None),
        (1, ["10.0.0.1:9200"], None),
        (1, [], None),
    ],
)
def test_the_doctor_names_the_nodes_that_one_url_leaves_out(urls: int, addresses: list[str], said: str | None) -> None:
    found = list(check_addresses(urls, addresses))
    assert len(found) == (said is not None)
    assert all(said and said in one.message and one.state == "note" for one in found)
