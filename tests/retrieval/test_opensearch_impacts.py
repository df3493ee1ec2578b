"""Impacts on real OpenSearch nodes, beside BM25 and vectors: the rankings of the same impacts in a folder."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.builds.update import update_index
from keystone.indexing.errors import UserError
from keystone.indexing.impacts import RowImpacts, open_impact_encoder, settle_impacts
from keystone.indexing.index import Index, open_index
from keystone.indexing.opensearch.build import adopt_loaded
from keystone.indexing.opensearch.cluster import place_of
from keystone.indexing.opensearch.index import Target
from keystone.retrieval.backends import open_impacts, open_store
from tests.support.indexes.small_corpus import CORPUS, write_corpus, write_long_corpus, write_topics
from tests.support.models.checkpoints import find_splade
from tests.support.mutation import FUZZ_CASES
from tests.support.runs.command_line import keystone
from tests.support.servers.opensearch import Cluster

WORDS = sorted({word.strip(".,").lower() for _, text in CORPUS.values() for word in text.split()})

QUERIES = 20 if FUZZ_CASES else 8


def write_texts(path: Path, ids: range, seed: int) -> Path:
    choose = random.Random(seed)
    lines = [{"id": f"d{n:03d}", "text": " ".join(choose.choices(WORDS, k=choose.randint(1, 60)))} for n in ids]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module", params=["opensearch", "older_opensearch"])
def server(request: pytest.FixtureRequest) -> Cluster:
    """A node of each version."""
    node: Cluster = request.getfixturevalue(request.param)
    return node


def index_texts(folder: Path, out: str, *place: str) -> None:
    given = ("--impacts", f"splade={find_splade()}", "-q", *place)
    shown = keystone("index", folder / "corpus.jsonl", "--out", folder / out, *given)
    assert shown.returncode == 0, shown.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents with BM25, vectors and impacts in the folder `local`."""
    made = tmp_path_factory.mktemp("impacts")
    write_texts(made / "corpus.jsonl", range(300), 0)
    index_texts(made, "local")
    return made


@pytest.fixture(scope="module")
def folder(made: Path, server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents in the folder `local`, and in two shards of the cluster."""
    folder = shutil.copytree(made, tmp_path_factory.mktemp("cluster"), dirs_exist_ok=True)
    index_texts(folder, "cluster", "--opensearch", f"{server.url}/impacts", "--shards", "2")
    return folder


def search(index: Index, depth: int = 1000, tokens: int = 40) -> list[list[tuple[str, float]]]:
    """Rankings of random queries of so many tokens each, from ids and scores."""
    vocabulary, choose = open_impact_encoder(index.impacts["splade"]).vocabulary, random.Random(tokens)
    queries = [
        {token: float(choose.randint(1, 255)) for token in choose.sample(vocabulary, tokens)} for _ in range(QUERIES)
    ]
    found = open_impacts(index, "splade").search([str(n) for n in range(QUERIES)], queries, depth)
    store = open_store(index)
    return [list(zip(store.ids(found.of(n)), found.scores_of(n).tolist(), strict=True)) for n in range(QUERIES)]


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "tokens"), [(1000, 1000), (10, 1000), (50, 3000), (1000, 3000)])
def test_rankings_are_those_of_local_impacts_to_the_last_tie(folder: Path, depth: int, tokens: int) -> None:
    local = search(open_index(folder / "local"), depth, tokens)
    assert search(open_index(folder / "cluster"), depth, tokens) == local
    assert max(map(len, local)) > 5


@pytest.mark.slow
def test_a_run_by_the_cluster_ranks_as_one_by_the_folder(folder: Path, tmp_path: Path) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    systems = {"bm25": {"kind": "bm25"}, "dense": {"kind": "dense"}, "splade": {"kind": "impact", "impacts": "splade"}}
    for name in ("local", "cluster"):
        values: dict[str, Any] = {"run_id": "a", "index": str(folder / name), "topics": str(topics), "track": "none"}
        values |= {"out": str(tmp_path / name), "retrieval": {"systems": systems}, "answer": {"method": "none"}}
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
        shown = keystone("run", tmp_path / "run.yaml", "-q")
        assert shown.returncode == 0, shown.stderr
    local, cluster = ((tmp_path / name / "a/splade.trec").read_text() for name in ("local", "cluster"))
    assert local == cluster
    assert len(local) > 0


@pytest.mark.slow
def test_an_update_of_the_cluster_encodes_what_is_new(folder: Path, server: Cluster, tmp_path: Path) -> None:
    impacts = {"splade": settle_impacts(str(find_splade()))}
    place = ("--opensearch", f"{server.url}/updated", "--no-dense", "--impacts", f"splade={find_splade()}", "-q")
    shown = keystone("index", folder / "corpus.jsonl", "--out", tmp_path / "index", *place)
    assert shown.returncode == 0, shown.stderr
    changed = write_texts(tmp_path / "changed.jsonl", range(290, 310), 1)
    (tmp_path / "gone.txt").write_text("d000\nd001\n")
    updated, _ = update_index(tmp_path / "index", [changed], tmp_path / "gone.txt")
    lines = (folder / "corpus.jsonl").read_text().splitlines(keepends=True)[2:290]
    (tmp_path / "whole.jsonl").write_text("".join(lines) + changed.read_text())
    fresh, _ = build_index(tmp_path / "whole.jsonl", tmp_path / "fresh", BuildSettings(embedding=None, impacts=impacts))
    assert search(updated, tokens=1000) == search(fresh, tokens=1000)


@pytest.mark.slow
@pytest.mark.parametrize("passages", [False, True])
def test_an_update_encodes_the_same_texts_as_the_load(server: Cluster, tmp_path: Path, passages: bool) -> None:
    """An older version loaded the impacts of the beginnings of documents for an index of passages."""
    settings = BuildSettings(embedding=None, passages=passages, impacts={"splade": settle_impacts(str(find_splade()))})
    corpus, place = write_corpus(tmp_path / "corpus.jsonl"), place_of(f"{server.url}/texts-{passages}".lower())
    build_index(corpus, tmp_path / "index", replace(settings, opensearch=Target(place)))
    description = tmp_path / "index/index.json"
    description.write_text(json.dumps({**json.loads(description.read_text()), "passages": True}))
    updated, _ = update_index(tmp_path / "index", [write_long_corpus(tmp_path / "long.jsonl")])
    fresh, _ = build_index(tmp_path / "long.jsonl", tmp_path / "fresh", settings)
    assert search(updated, tokens=1000) == search(fresh, tokens=1000)


@pytest.mark.slow
def test_another_folder_takes_the_impacts_of_the_cluster(folder: Path, server: Cluster, tmp_path: Path) -> None:
    index, _ = adopt_loaded(place_of(f"{server.url}/impacts"), tmp_path / "adopted")
    assert index.impacts == open_index(folder / "local").impacts
    assert search(index, 10) == search(open_index(folder / "local"), 10)


def test_documents_have_their_impacts_by_row_and_one_that_is_too_great_is_refused(tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.npy" for n in range(3)]
    np.save(files[0], np.array([[0, 0, 2], [5, 7, 5], [1, 2, 3]], np.int32))
    np.save(files[1], np.empty((3, 0), np.int32))
    np.save(files[2], np.array([[4, 5], [9, 9], [511, 512]], np.int32))
    impacts = RowImpacts(files, 511)
    assert impacts.of(range(5)) == [{"5": 1, "7": 2}, {}, {"5": 3}, {}, {"9": 511}]
    assert [impacts.of(range(row, row + 1))[0] for row in range(5)] == impacts.of(range(5))
    with pytest.raises(UserError, match="found 512, expected at most 511"):
        impacts.of(range(4, 6))
