"""The manifest of an index says if its models ran on a GPU, and else it has the bytes that it always had."""

import json
from pathlib import Path

import numpy as np
import pytest

from keystone.indexing.builds.changes import change_parts
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.builds.update import update_index
from keystone.indexing.index import Index, open_index
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


@pytest.mark.slow
def test_an_updated_index_names_a_gpu_if_any_of_its_vectors_may_be_of_one(tmp_path: Path) -> None:
    embedding, number = Embedding("words of a GPU"), iter(range(9))
    (gone := tmp_path / "gone").write_text("wasps\n")

    def update(device: str, delete: bool = False) -> str:
        (new := tmp_path / "new.jsonl").write_text(json.dumps({"id": "new", "text": f"Moths {next(number)}."}))
        with stand_in(embedding, OnDevice(device)):
            index, _ = update_index(tmp_path / "index", () if delete else [new], gone if delete else None)
        return index.device

    with stand_in(embedding, OnDevice("cpu")):
        build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", BuildSettings(embedding=embedding))
    assert update("cpu") == "cpu"
    assert update("cuda", delete=True) == "cpu", "nothing was embedded"
    assert update("cuda") == "cuda"
    assert update("cpu") == "cuda", "most vectors stay"


@pytest.mark.slow
def test_an_index_with_an_added_set_names_a_gpu_if_any_of_its_vectors_may_be_of_one(tmp_path: Path) -> None:
    embedding = Embedding("words of a GPU")
    build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", BuildSettings(embedding=None))

    def add(device: str, name: str) -> Index:
        with stand_in(embedding, OnDevice(device)):
            return change_parts(tmp_path / "index", BuildSettings(vectors={name: embedding}))

    assert [add(device, name).device for name, device in (("a", "cpu"), ("b", "cuda"), ("c", "cpu"))] == [
        "cpu", "cuda", "cuda",
    ]  # fmt: skip
