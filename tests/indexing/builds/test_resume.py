"""An index build that is stopped, by an error or `kill -9`, goes on and ends with the same bytes."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.types import Embedding
from keystone.indexing.vectors import shards as vectors
from keystone.indexing.vectors.embed import load_model
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query
from tests.support.indexes.searches import search_all
from tests.support.indexes.small_corpus import CORPUS, read_contents, write_corpus
from tests.support.processes import run_with_kills
from tests.support.servers.embeddings import Server, serving, status

pytestmark = pytest.mark.slow


def rankings(index: Index) -> list[Any]:
    queries = [Query(str(n), f"{n}-1", text, text, text) for n, (text, _) in enumerate(CORPUS.values())]
    return [found.docs.tolist() for found in search_all(index, open_store(index), queries, depth=5).values()]


def sent(server: Server) -> list[str]:
    return [text for request in server.requests for text in request if text != "dimension"]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "SHARD_DOCUMENTS", 2)


@pytest.mark.usefixtures("small_shards")
def test_finished_shards_are_not_embedded_again(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    with serving() as server:
        embedding = Embedding("letters", server.url)
        whole, _ = build_index(corpus, tmp_path / "whole", BuildSettings(embedding=embedding))
        server.requests.clear()
        refuses = iter([False] * 3 + [True] * 9)
        server.always = lambda handler, texts: next(refuses) and status(403, "closed")(handler, texts)
        with pytest.raises(UserError, match="closed"):
            build_index(corpus, tmp_path / "index", BuildSettings(embedding=embedding))
        assert not (tmp_path / "index").exists()
        kept = sent(server)[:-2]
        server.requests.clear()
        server.always = None
        index, built = build_index(corpus, tmp_path / "index", BuildSettings(embedding=embedding))
        assert built
        assert len(kept) + len(sent(server)) == len(CORPUS)
        assert not set(kept) & set(sent(server)) - {"Twin\n" + CORPUS["twin-a"][1]}
    assert read_contents(index.folder) == read_contents(whole.folder)
    assert rankings_bm25(index) == rankings_bm25(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "index", "whole"]


def rankings_bm25(index: Index) -> list[Any]:
    queries = [Query("1", "1-1", "", text, "") for text, _ in CORPUS.values()]
    return list(search_all(index, open_store(index), queries, systems=["bm25"], depth=5)["bm25"].docs)


def damaged(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        file = folder / "00000001.npy"
        file.write_bytes(change(file.read_bytes()))

    return damage


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damaged(lambda raw: raw[:-4]), id="a short shard"),
        pytest.param(damaged(lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])), id="a changed bit"),
        pytest.param(damaged(lambda _: b""), id="an empty shard"),
        pytest.param(lambda folder: (folder / "00000001.npy").unlink(), id="a missing shard"),
        pytest.param(lambda folder: (folder / "00000001.json").unlink(), id="a missing note"),
        pytest.param(lambda folder: (folder / "00000001.json").write_text("{"), id="half a note"),
        pytest.param(lambda folder: (folder / ".00000002.npy.1.partial").write_text("x"), id="the rest of a write"),
    ],
)
def test_a_damaged_shard_is_embedded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    from keystone.indexing.vectors import recall as dense

    corpus = write_corpus(tmp_path / "corpus.jsonl")
    whole, _ = build_index(corpus, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(dense, "build_dense", stop)
        with pytest.raises(KeyboardInterrupt):
            build_index(corpus, tmp_path / "index")
    damage(tmp_path / ".index.partial" / "vectors")
    index, _ = build_index(corpus, tmp_path / "index")
    assert read_contents(index.folder) == read_contents(whole.folder)
    assert rankings(index) == rankings(whole)
    names = ["dense.faiss", "index.json", "lucene", "postings", "store"]
    assert sorted(path.name for path in index.folder.iterdir()) == names


def stop(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("small_shards")
def test_files_of_another_corpus_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from keystone.indexing.vectors import recall as dense

    corpus = write_corpus(tmp_path / "corpus.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(dense, "build_dense", stop)
        with pytest.raises(KeyboardInterrupt):
            build_index(corpus, tmp_path / "index")
    corpus.write_text(corpus.read_text().replace("Honey", "Money"))
    index, _ = build_index(corpus, tmp_path / "index")
    whole, _ = build_index(corpus, tmp_path / "whole")
    assert read_contents(index.folder) == read_contents(whole.folder)


@pytest.mark.usefixtures("small_shards")
def test_a_model_that_changed_between_two_tries_is_an_error(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    with serving() as server:
        embedding = Embedding("letters", server.url)
        refuses = iter([False] * 3 + [True] * 9)
        server.always = lambda handler, texts: next(refuses) and status(403)(handler, texts)
        with pytest.raises(UserError):
            build_index(corpus, tmp_path / "index", BuildSettings(embedding=embedding))
        server.always, server.model = None, lambda texts: np.ones((len(texts), 3), np.float32)
        load_model.cache_clear()
        with pytest.raises(UserError, match="found vectors of 3 numbers after 9: the model has changed"):
            build_index(corpus, tmp_path / "index", BuildSettings(embedding=embedding))


def test_an_error_before_the_first_finished_stage_leaves_no_files(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "a", "text": "one"}\n{"id": "a"')
    with pytest.raises(UserError):
        build_index(corpus, tmp_path / "index", BuildSettings(embedding=None))
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


@pytest.mark.parametrize(
    ("factory", "passages", "times", "kills"),
    [
        pytest.param("Flat", False, 30, 12, marks=pytest.mark.nightly),
        ("Flat", True, 10, 4),
        pytest.param("IVF8,PQ48x4", False, 10, 3, marks=pytest.mark.nightly),
    ],
)
def test_a_build_killed_at_random_moments_ends_with_the_bytes_of_an_undisturbed_one(
    tmp_path: Path, factory: str, passages: bool, times: int, kills: int
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    sentences = [s for _, text in CORPUS.values() for s in text.split(". ")]
    choose = random.Random(7)
    with corpus.open("w") as out:
        for n in range(200):
            text = ". ".join(choose.sample(sentences, choose.randint(1, 16 if passages else 6)))
            out.write(json.dumps({"id": f"d{n}", "text": text}) + "\n")
    whole, _ = build_index(corpus, tmp_path / "whole", BuildSettings(faiss=factory, passages=passages))

    def compare() -> None:
        index = open_index(tmp_path / "index")
        assert read_contents(index.folder) == read_contents(whole.folder)
        assert rankings(index) == rankings(whole)
        names = ["dense.faiss", "index.json", "lucene", *(["passages.npy"] if passages else []), "postings", "store"]
        assert sorted(path.name for path in index.folder.iterdir()) == names
        assert not list(tmp_path.glob(".*"))
        shutil.rmtree(index.folder)

    arguments = ["index", str(corpus), "--out", str(tmp_path / "index"), "--faiss", factory, "--quiet"]
    arguments += ["--dense", "passages"] if passages else []
    small_shards = "from keystone.indexing.vectors import shards as vectors; vectors.SHARD_DOCUMENTS = 20"
    run_with_kills(*arguments, times=times, kills=kills, done=compare, code=small_shards)
