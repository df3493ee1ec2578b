"""BM25 in the languages of documents in real OpenSearch nodes: the rankings are those of a local index."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.builds.update import update_index
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.write import can_segment_thai
from keystone.indexing.opensearch.analysis import ANALYZERS, PLUGINS, make_analysis
from keystone.indexing.opensearch.build import adopt_loaded
from keystone.indexing.opensearch.cluster import place_of
from keystone.indexing.opensearch.index import Target
from keystone.retrieval.backends import open_sparse, open_store
from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Query, Rankings
from tests.support.declaration import ARTICLE_1, make_texts
from tests.support.servers.opensearch import Cluster, call

pytestmark = pytest.mark.slow

FIVE = ("ar", "en", "fa", "ru", "zh")
BUILT_IN = [code for code in ANALYZERS if code not in PLUGINS and (code != "th" or can_segment_thai())]


@pytest.fixture(scope="module", params=["opensearch", "older_opensearch"])
def server(request: pytest.FixtureRequest) -> Cluster:
    """A node of each version."""
    node: Cluster = request.getfixturevalue(request.param)
    return node


def write(path: Path, languages: tuple[str, ...], seed: int = 1) -> Path:
    """Write 60 documents in each language."""
    lines = (
        orjson.dumps({"id": f"{number:03d}-{code}", "text": text, "lang": code}) + b"\n"
        for code in languages
        for number, text in enumerate(make_texts(code, 60, 30, seed))
    )
    path.write_bytes(b"".join(lines))
    return path


def settings(language: str, target: Target | None = None) -> BuildSettings:
    return BuildSettings(embedding=None, language=language, opensearch=target)


def place(server: Cluster, tmp_path: Path, shards: int = 1) -> Target:
    return Target(place_of(f"{server.url}/{tmp_path.name.replace('_', '-').strip('-').lower()}"), shards)


def make_queries(languages: tuple[str, ...]) -> list[Query]:
    """Make a query of the words of all languages, translated into each of them."""
    asked = {code: make_texts(code, 10, 6, seed=2) for code in languages}
    found = []
    for number in range(10):
        told = tuple((code, texts[number]) for code, texts in asked.items())
        text = " ".join(text for _, text in told)
        found.append(Query(str(number), f"q{number}", text, text, text, translations=told))
    return found


def search(index: Index, **keys: Any) -> tuple[list[list[str]], Rankings]:
    store = open_store(index)
    found = Bm25System(**keys).search(OpenIndex(index, store), make_queries(FIVE), None)
    return [store.ids(found.of(i)) for i in range(len(found))], found


def assert_same(one: Index, other: Index, **keys: Any) -> None:
    (names, found), (expected, rankings) = search(one, **keys), search(other, **keys)
    assert names == expected
    assert any(names)
    np.testing.assert_allclose(found.scores, rankings.scores, rtol=1e-5)


@pytest.mark.parametrize("code", [*BUILT_IN, "da", "hu", "nl", "no", "sv"])
def test_a_node_finds_the_tokens_of_anserini(code: str, server: Cluster) -> None:
    name = f"/tokens-{code}"
    text = f"{ARTICLE_1.get(code, ARTICLE_1['en'])} Häuser l'homme 3,14 كتاب‌ها ЁЛКА дети 權利 Kız İstanbul'un"
    body = {"settings": {"index": {"number_of_replicas": 0}, "analysis": make_analysis({"languages": {}})}}
    call(server.url, "PUT", name, body)
    found = call(server.url, "POST", f"{name}/_analyze", {"analyzer": ANALYZERS[code], "text": text})
    call(server.url, "DELETE", name)
    assert [token["token"] for token in found["tokens"]] == stems_of(text, code)


@pytest.mark.parametrize("code", ["de", "fa", "zh"])
def test_a_language_is_ranked_as_in_a_local_index(code: str, server: Cluster, tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", (code,))
    local, _ = build_index(corpus, tmp_path / "local", settings(code))
    held, _ = build_index(corpus, tmp_path / "held", settings(code, place(server, tmp_path)))
    assert held.language == code
    texts = make_texts(code, 10, 6, seed=2)
    here, there = (open_sparse(index, open_store(index)).search(texts, texts, 50) for index in (local, held))
    np.testing.assert_array_equal(there.docs, here.docs)
    np.testing.assert_allclose(there.scores, here.scores, rtol=1e-5)


@pytest.mark.parametrize("shards", [1, 2])
def test_each_document_is_searched_in_its_own_language(shards: int, server: Cluster, tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", FIVE)
    local, _ = build_index(corpus, tmp_path / "local", settings("field:lang"))
    held, _ = build_index(corpus, tmp_path / "held", settings("field:lang", place(server, tmp_path, shards)))
    assert held.languages == local.languages
    for keys in ({}, {"language": "ru"}, {"feedback": "rm3", "language": "fa"}, {"feedback": "rocchio"}):
        assert_same(held, local, **keys)
    here, there = (open_sparse(index, open_store(index)) for index in (local, held))
    words = ["dignity", "права", "權利"]
    assert there.document_frequencies(words) == here.document_frequencies(words)
    assert search(adopt_loaded(place(server, tmp_path).place, tmp_path / "adopted")[0])[0] == search(local)[0]


def test_an_update_brings_a_new_language(server: Cluster, tmp_path: Path) -> None:
    (some := tmp_path / "some").mkdir()
    (all_five := tmp_path / "all").mkdir()
    build_index(write(some / "c.jsonl", FIVE[:3]), tmp_path / "local", settings("field:lang"))
    build_index(some / "c.jsonl", tmp_path / "held", settings("field:lang", place(server, tmp_path)))
    later = write(all_five / "c.jsonl", FIVE, seed=5)
    for folder in ("local", "held"):
        update_index(tmp_path / folder, [later])
    held, local = (open_index(tmp_path / folder) for folder in ("held", "local"))
    assert held.languages == local.languages == dict.fromkeys(FIVE, 60)
    assert_same(held, local)


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("ja", "cannot analyze Japanese: .*expected the plugin analysis-kuromoji on each of its nodes"),
        ("te", "OpenSearch has no analyzer with Anserini's tokens for Telugu"),
        ("tokenizer:pieces.json", "OpenSearch has no analyzer with Anserini's tokens for word pieces"),
        ("field:lang", "cannot analyze Japanese: .*expected the plugin analysis-kuromoji"),
    ],
)
def test_a_language_that_a_node_cannot_analyze_is_refused(
    language: str, words: str, server: Cluster, tmp_path: Path
) -> None:
    corpus = write(tmp_path / "c.jsonl", ("en", "ja"))
    with pytest.raises(UserError, match=words):
        build_index(corpus, tmp_path / "index", settings(language, place(server, tmp_path)))
    assert not (tmp_path / "index").exists()
