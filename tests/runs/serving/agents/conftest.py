"""The small corpus, served in this process, with a log of calls."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from keystone.indexing.index import Index
from keystone.runs.config.read import make_config
from keystone.runs.serving.call_log import make_settings_key, open_call_log
from keystone.runs.serving.service import Service, open_service


@pytest.fixture(scope="session")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of the calls of all tests, to which each test adds its own."""
    return tmp_path_factory.mktemp("log") / "calls.jsonl"


@pytest.fixture(scope="session")
def service(index: Index, log_file: Path) -> Iterator[Service]:
    config = make_config(None, [], None, Path("-"), index.folder)
    with open_call_log(log_file, index.key, make_settings_key(config)) as log, open_service(config, log) as opened:
        yield opened
