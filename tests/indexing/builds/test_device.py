"""The manifest of an index says if its models ran on a GPU, and else it has the bytes that it always had."""

import json
from pathlib import Path

import numpy as np
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import open_index
from keystone.indexing.types import Embedding
from keystone.indexing.vectors.embed import WordVectors, find_device, stand_in
from tests.support.indexes.small_corpus import write_corpus
from tests.support.models.checkpoints import write_checkpoint


class OnDevice(WordVectors):
    """Vectors of words, on a device."""

    def __init__(self, device: str) -> None:
        self.device = device


@pytest.mark.slow
def test_only_another_device_than_the_processor_is_named(tmp_path: Path) -> None:
    corpus, embedding = write_corpus(tmp_path / "corpus.jsonl"), Embedding("words of a GPU")
    described = {}
    for device in ("cpu", "cuda"):
        with stand_in(embedding, OnDevice(device)):
            index, _ = build_index(corpus, tmp_path / device, BuildSettings(embedding=embedding))
        assert open_index(tmp_path / device).device == device
        described[device] = json.loads((tmp_path / device / "index.json").read_bytes())
        assert np.array_equal(index.dense.read_bytes(), (tmp_path / "cpu" / "dense.faiss").read_bytes())
    assert described["cuda"] == described["cpu"] | {"device": "cuda"}


def test_a_checkpoint_runs_on_a_known_device(tmp_path: Path) -> None:
    assert find_device(Embedding(str(write_checkpoint(tmp_path / "model", pooling="mean")))) in ("cpu", "cuda")
