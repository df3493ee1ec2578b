"""An index whose documents have languages of their own, searched through Keystone's server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import orjson
import pytest

from keystone.indexing.attached.rest_store import adopt_server
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from keystone.retrieval.backends import open_store
from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Query, Rankings
from tests.support.declaration import make_texts
from tests.support.servers.keystone_server import keystone_server

pytestmark = pytest.mark.slow

FIVE = ("ar", "en", "es", "ru", "zh")


def write(path: Path, codes: tuple[str, ...]) -> Path:
    lines = (
        orjson.dumps({"id": f"{number:02d}-{code}", "text": text, "lang": code}) + b"\n"
        for code in codes
        for number, text in enumerate(make_texts(code, 40, 30, seed=3))
    )
    path.write_bytes(b"".join(lines))
    return path


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("several")
    return build_index(
        write(folder / "c.jsonl", FIVE), folder / "index", BuildSettings(embedding=None, language="field:lang")
    )[0]


@pytest.fixture(scope="module")
def url(local: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with keystone_server(local.folder, tmp_path_factory.mktemp("server")) as served:
        yield served.url


def get(target: str) -> tuple[int, str]:
    try:
        with urlopen(target) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def search(index: Index, queries: list[Query], **keys: Any) -> tuple[list[list[str]], Rankings, Any]:
    store = open_store(index)
    found = Bm25System(**keys).search(OpenIndex(index, store), queries, None)
    return [store.ids(found.of(i)) for i in range(len(found))], found, store


@pytest.mark.parametrize("keys", [{}, {"language": "zh"}, {"language": "Russian"}], ids=str)
def test_each_language_is_searched_by_its_own_query(
    keys: dict[str, str], local: Index, url: str, tmp_path: Path
) -> None:
    remote, _ = adopt_server(Path(f"rest:{url}/index"), tmp_path / "remote")
    assert (remote.language, remote.languages) == (local.language, local.languages)
    told = {code: make_texts(code, 6, 6, seed=4) for code in FIVE}
    queries = [
        Query(str(i), str(i), told["en"][i], told["en"][i], "", translations=tuple((c, told[c][i]) for c in FIVE))
        for i in range(6)
    ]
    (names, found, store), (expected, rankings, _) = search(remote, queries, **keys), search(local, queries, **keys)
    assert names == expected
    np.testing.assert_allclose(found.scores, rankings.scores, rtol=1e-6)
    assert {document.id[3:] for document in store} == {document.language for document in store} <= set(FIVE)


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"language": "es"}, 200, '"languages":{"'),
        ({"language": "th"}, 400, "found 'th' for"),
        ({"language": "es", "method": "hybrid"}, 400, "'language' needs method=bm25"),
    ],
    ids=["one", "lacking", "method"],
)
def test_a_request_names_a_language(asked: dict[str, str], status: int, words: str, url: str) -> None:
    found, reply = get(f"{url}/v1/index/search?{urlencode({'query': 'dignidad derechos', **asked})}")
    assert found == status
    assert words in orjson.loads(reply).get("error", reply)
    assert {hit["docid"][3:] for hit in orjson.loads(reply).get("candidates", [{"docid": "00-es"}])} == {"es"}


def test_an_index_of_one_language_tells_it(tmp_path: Path) -> None:
    local, _ = build_index(
        write(tmp_path / "c.jsonl", ("zh",)), tmp_path / "index", BuildSettings(embedding=None, language="zh")
    )
    with keystone_server(local.folder, tmp_path) as served:
        remote, _ = adopt_server(Path(f"rest:{served.url}/index"), tmp_path / "remote")
        assert (remote.language, remote.languages) == ("zh", {})
        queries = [Query("1", "1", text := make_texts("zh", 1, 9, seed=4)[0], text, text)]
        assert search(remote, queries)[0] == search(local, queries)[0]
