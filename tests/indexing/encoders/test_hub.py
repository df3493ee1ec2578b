"""Checkpoints of the hub: fetched once from a stand-in, found again without network, refused if they are not there."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keystone.indexing.index import open_index
from tests.support import programs
from tests.support.indexes.small_corpus import write_corpus
from tests.support.models.checkpoints import write_checkpoint
from tests.support.places import ROOT
from tests.support.servers.hub import HubServer, hub_server

pytestmark = pytest.mark.slow


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    write_checkpoint(tmp_path / "encoder", pooling="cls", prompts={"query": "q: "})
    with hub_server({"models/someone/encoder": tmp_path / "encoder"}) as server:
        yield server


def build(tmp_path: Path, name: str, out: str, **variables: str) -> Any:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    command: list[str | Path] = [
        ROOT / ".venv/bin/keystone",
        "index",
        corpus,
        "--out",
        tmp_path / out,
        "--embedding",
        name,
        "-q",
    ]
    own = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment = {**own, "HF_HOME": str(tmp_path / "hub"), **variables}
    return programs.run(command, env=environment, capture_output=True, text=True)


def test_a_checkpoint_is_fetched_once_and_then_found_without_network(hub: HubServer, tmp_path: Path) -> None:
    shown = build(tmp_path, "someone/encoder", "one", HF_ENDPOINT=hub.url)
    assert shown.returncode == 0, shown.stderr
    made = open_index(tmp_path / "one").embedding
    assert made is not None
    assert (made.model, made.query_prefix) == ("someone/encoder", "q: ")
    asked = len(hub.asked)
    shown = build(tmp_path, "someone/encoder", "two", HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")
    assert (shown.returncode, len(hub.asked)) == (0, asked), shown.stderr
    assert open_index(tmp_path / "two").key == open_index(tmp_path / "one").key


@pytest.mark.parametrize("offline", ["0", "1"])
def test_a_checkpoint_that_cannot_be_had_is_an_error_with_the_remedy(
    hub: HubServer, offline: str, tmp_path: Path
) -> None:
    shown = build(tmp_path, "someone/other", "index", HF_ENDPOINT=hub.url, HF_HUB_OFFLINE=offline)
    assert shown.returncode == 1
    assert "model 'someone/other': could not be fetched from the hub:" in shown.stderr
    assert "put the checkpoint into a folder on this machine" in " ".join(shown.stderr.split())
    assert "Traceback" not in shown.stderr
    assert not (tmp_path / "index").exists()
