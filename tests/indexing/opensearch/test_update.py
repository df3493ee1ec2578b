"""Updating an index in a real OpenSearch: only changes are sent, and the result is that of a fresh load."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keystone.indexing.builds import update as updates
from keystone.indexing.builds import update_cluster as filling
from keystone.indexing.builds.changes import Changes
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.builds.update import update_index
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.opensearch import build as replacing
from keystone.indexing.opensearch.build import adopt_loaded
from keystone.indexing.opensearch.cluster import close, connect, place_at, place_of
from keystone.indexing.opensearch.index import Target, switch, version_at
from keystone.indexing.vectors.of_segments import segment_vectors
from keystone.retrieval.backends import open_sparse, open_store
from keystone.retrieval.types import Query
from tests.support.indexes.searches import search_all
from tests.support.indexes.small_corpus import CORPUS
from tests.support.mutation import FUZZ_CASES
from tests.support.servers.opensearch import Cluster, call

pytestmark = pytest.mark.slow

NAMES = iter(f"update-{number}" for number in range(10_000))
SENTENCES = [sentence for _, text in CORPUS.values() for sentence in text.split(". ")]
KINDS: Mapping[str, tuple[BuildSettings, int]] = {
    "BM25": (BuildSettings(embedding=None), 1),
    "BM25 in three shards": (BuildSettings(embedding=None), 3),
    "documents": (BuildSettings(), 1),
    "passages": (BuildSettings(passages=True), 1),
    "passages in two shards": (BuildSettings(passages=True), 2),
    "graph": (BuildSettings(faiss="HNSW16"), 1),
    "pool": (BuildSettings(faiss=None), 1),
}
"""Settings of an index, and its number of shards."""

Texts = dict[str, str]


@pytest.fixture(params=["opensearch", "older_opensearch"])
def server(request: pytest.FixtureRequest) -> Cluster:
    """Each of the versions."""
    node: Cluster = request.getfixturevalue(request.param)
    return node


def write(path: Path, texts: Mapping[str, str]) -> Path:
    path.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()))
    return path


def draw(choose: random.Random) -> str:
    return ". ".join(choose.sample(SENTENCES, choose.randint(1, 6)))


def load(server: Cluster, kind: str, texts: Texts, folder: Path) -> Index:
    """A fresh load of documents."""
    settings, shards = KINDS[kind]
    target = Target(place_of(f"{server.url}/{next(NAMES)}"), shards)
    corpus = write(folder.with_suffix(".jsonl"), texts)
    return build_index(corpus, folder, replace(settings, opensearch=target))[0]


def describe(index: Index) -> list[Any]:
    """All documents, vectors of passages and rankings of an index, and what it says of itself."""
    store, queries = open_store(index), []
    for n, (title, text) in enumerate(CORPUS.values()):
        queries.append(Query(str(n), f"{n}-1", text, f"{title} {text}", text))
    systems = ["bm25", "dense"] if index.embedding and not index.pooled else ["bm25"]
    rankings = search_all(index, store, queries, systems=systems, depth=9).values()
    sparse = open_sparse(index, store)
    words = " ".join(text for _, text in CORPUS.values()).split()
    vectors = segment_vectors(index, store, range(len(store))) if index.embedding else {}
    ids = store.ids(range(len(store)))
    said = json.loads((index.folder / "index.json").read_text())
    return [
        list(store),
        ids,
        store.rows([*ids, "no such document"]).tolist(),
        [(ranked.docs.tolist(), ranked.scores.tolist()) for ranked in rankings],
        sparse.document_frequencies(words),
        {row: vectors[row].tolist() for row in vectors},
        {name: said[name] for name in said if name not in ("key", "corpus", "left_out", "at", "numbers")},
    ]


def indexes(server: Cluster, index: Index) -> list[str]:
    """The names of the indexes in the cluster that belong to an index."""
    return sorted(name for name in call(server.url, "GET", "/_all") if name.startswith(index.at["name"]))


def change(texts: Texts, choose: random.Random) -> tuple[Texts, list[str]]:
    known = choose.sample(sorted(texts.keys() - {"same"}), 5)
    removed, replaced = known[: choose.randint(0, 2)], known[2 : choose.randint(2, 5)]
    given = {name: draw(choose) for name in [*replaced, *(f"d{choose.randint(0, 99)}" for _ in range(3))]}
    return {name: text for name, text in given.items() if name not in removed} | {"same": texts["same"]}, removed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(5 if FUZZ_CASES else 1))
def test_any_sequence_of_updates_ends_in_the_index_of_a_fresh_load(
    server: Cluster, tmp_path: Path, kind: str, number: int
) -> None:
    choose = random.Random(f"{kind}{number}")
    texts = {f"d{n}": draw(choose) for n in range(10, 20)} | {"same": draw(choose)}
    index = load(server, kind, texts, tmp_path / "index")
    if server.version.startswith("2") and index.faiss == "Flat" and not index.passages:
        with pytest.raises(UserError, match="the cluster cannot copy this index"):
            update_index(index.folder, [write(tmp_path / "new.jsonl", {"new": "New."})])
        assert indexes(server, index) == [index.at["name"]]
        assert not list(tmp_path.glob(".*.old"))
        return
    for _ in range(3 if FUZZ_CASES else 2):
        given, removed = change(texts, choose)
        (gone := tmp_path / "gone").write_text("\n".join(removed))
        changed = {name: text for name, text in given.items() if texts.get(name) != text}
        expected = Changes(len(changed.keys() - texts), len(changed.keys() & texts), len(removed))
        texts = {name: text for name, text in (texts | changed).items() if name not in removed}
        index, changes = update_index(index.folder, [write(tmp_path / "new.jsonl", given)], gone)
        assert changes == expected
    fresh = load(server, kind, texts, tmp_path / "fresh")
    assert describe(index) == describe(fresh)
    adopted, _ = adopt_loaded(place_of(f"{index.at['url']}/{index.at['name']}"), tmp_path / "adopted")
    assert describe(adopted) == describe(fresh)
    assert len(indexes(server, index)) == 1
    assert {path.name for path in index.folder.glob("[!s]*")} == {"index.json", "numbers.npy"}  # and segments.sqlite


class Killed(BaseException):
    """Ends an update at once, as a signal would."""


def kill_after(patch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    perform = getattr(module, name)

    def stop(*given: Any, **named: Any) -> None:
        perform(*given, **named)
        raise Killed

    patch.setattr(module, name, stop)


STOPS = [
    *(
        (replacing, name)
        for name in ("clone", "delete_documents", "send_rows", "describe", "purge", "finish", "switch")
    ),
    *((updates, name) for name in ("find_changes",)),
    *((filling, name) for name in ("write_vectors", "write_description")),
]


def test_a_killed_update_goes_on_and_searches_see_one_state_or_the_other(
    opensearch: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {f"d{n}": draw(random.Random(n)) for n in range(12)}
    index = load(opensearch, "BM25", texts, tmp_path / "index")
    for number, (module, name) in enumerate(STOPS):
        before, key = describe(index), index.key
        new = write(tmp_path / "new.jsonl", {"d3": f"Bees {number}.", f"e{number}": "Wasps."})
        (gone := tmp_path / "gone").write_text(f"d{number}" if number != 3 else "")
        with monkeypatch.context() as patch:
            kill_after(patch, module, name)
            with pytest.raises(Killed):
                update_index(index.folder, [new], gone)
        assert open_index(index.folder).key == key
        if name not in ("switch", "write_description"):
            assert describe(index) == before, name
        index, changes = update_index(index.folder, [new], gone)
        assert (changes.added, changes.replaced, changes.removed) == (1, 1, int(number != 3)), name
        texts = {name: text for name, text in texts.items() if name not in ("d3", gone.read_text())}
        texts |= {"d3": f"Bees {number}.", f"e{number}": "Wasps."}
        assert len(indexes(opensearch, index)) == 1
    assert describe(index) == describe(load(opensearch, "BM25", texts, tmp_path / "fresh"))
    assert not [path for path in tmp_path.glob(".*") if "partial" in path.name]


def test_a_switch_whose_answer_was_lost_is_a_switch(opensearch: Cluster, tmp_path: Path) -> None:
    index = load(opensearch, "BM25", {"a": "Bees.", "b": "Wasps."}, tmp_path / "index")
    place = place_at(index.at)
    index, _ = update_index(index.folder, [write(tmp_path / "new.jsonl", {"c": "Ants."})])
    nodes, new = connect(place.urls, 1), version_at(place, index.key)
    switch(nodes, place, place, new)
    with pytest.raises(UserError, match="no such index"):
        switch(nodes, place, new, version_at(place, "0" * 64))
    close(nodes)
    assert indexes(opensearch, index) == [new.name]


def test_only_changes_are_sent(opensearch: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {f"d{n}": draw(random.Random(n)) for n in range(30)}
    index = load(opensearch, "documents", texts, tmp_path / "index")
    sent: list[int] = []
    send = getattr(replacing, "send_rows")  # noqa: B009

    def count(nodes: Any, upload: Any, wanted: Any, tick: Any) -> None:
        sent.append(sum(stop - start for start, stop in wanted))
        send(nodes, upload, wanted, tick)

    monkeypatch.setattr(replacing, "send_rows", count)
    new = write(tmp_path / "new.jsonl", {**texts, "d7": "Bees.", "new": "Wasps."})
    _, changes = update_index(index.folder, [new])
    assert (sent, changes) == ([2], Changes(added=1, replaced=1))


@pytest.mark.parametrize(
    "damage", [lambda numbers: numbers[:-1], lambda numbers: -numbers - 1, lambda numbers: numbers.astype(np.int64)]
)
def test_damaged_numbers_are_named(opensearch: Cluster, tmp_path: Path, damage: Any) -> None:
    index = load(opensearch, "BM25", {"a": "Bees.", "b": "Wasps."}, tmp_path / "index")
    index, _ = update_index(index.folder, [write(tmp_path / "new.jsonl", {"aa": "Ants."})])
    assert np.load(index.folder / "numbers.npy").tolist() == [0, 2, 1]
    np.save(index.folder / "numbers.npy", damage(np.load(index.folder / "numbers.npy")))
    with pytest.raises(UserError, match=r"numbers\.npy: damaged: make the folder again from the cluster"):
        open_store(index)


@pytest.fixture
def other(opensearch: Cluster, tmp_path: Path) -> Index:
    """An index that another folder has updated."""
    index = load(opensearch, "BM25", {"a": "Bees.", "b": "Wasps."}, tmp_path / "index")
    adopted, _ = adopt_loaded(place_of(f"{index.at['url']}/{index.at['name']}"), tmp_path / "other")
    update_index(index.folder, [write(tmp_path / "new.jsonl", {"c": "Ants."})])
    return adopted


def test_a_folder_of_an_index_that_another_one_has_updated_says_so(other: Index, tmp_path: Path) -> None:
    for use in (open_store, lambda index: update_index(index.folder, [tmp_path / "new.jsonl"])):
        with pytest.raises(UserError, match=r"found another index at .*, expected the one that it was made with"):
            use(other)
