"""The same requests to Keystone and to the server in Anserini's jar, over one Lucene index, have the same replies."""

import asyncio
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from keystone.indexing.attached.lucene_index import adopt_prebuilt
from keystone.runs.config.read import make_config
from keystone.runs.serving.app import make_app
from keystone.runs.serving.call_log import open_call_log
from keystone.runs.serving.served import Served
from keystone.runs.serving.server.guard import Guard
from keystone.runs.serving.service import open_service
from tests.support.indexes.lucene_indexes import build_anserini_index
from tests.support.indexes.small_corpus import CORPUS
from tests.support.servers.asgi import ask_app
from tests.support.servers.rest import anserini_server
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.slow

RECORDS = [{"id": name, "title": title, "contents": f"{title}\n{text}"} for name, (title, text) in CORPUS.items()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("beside")
    build_anserini_index(made, "bees", [RECORDS], "-storeRaw")
    return made


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Iterator[HTTPConnection]:
    with anserini_server(folder) as url:
        yield HTTPConnection(url.removeprefix("http://"), timeout=LIMIT_S)


@pytest.fixture(scope="module")
def app(folder: Path) -> Iterator[Any]:
    index, _ = adopt_prebuilt(Path(f"pyserini:{folder / 'bees'}"), folder / "keystone" / "bees")
    config = make_config(None, [], None, Path("-"), index.folder)
    with open_call_log(None, "", "") as calls, open_service(config, calls) as service:
        yield make_app(Served(service), Guard())


def round_scores(reply: Any) -> Any:
    """Four places are those that all versions of Anserini have, which takes a millionth off each tie."""
    for one in reply.get("candidates", []):
        one["score"] = round(one["score"], 3)
    return reply


@pytest.mark.parametrize(
    "target",
    [
        "/v1/bees/search?query=honey+bees+find+flowers",
        "/v1/bees/search?query=sugar+in+the+kitchen&hits=2",
        "/v1/bees/search?query=insects&hits=3&parse=false",
        "/v1/bees/search?query=zzyzx",
        "/v1/bees/doc/wasps",
        "/v1/bees/doc/wasps?parse=false",
        "/v1/{path}/search?query=insects&hits=2",
        "/v1/{path}/doc/wasps",
    ],
)
def test_replies_are_equal(app: Any, theirs: HTTPConnection, folder: Path, target: str) -> None:
    target = target.format(path=quote(str(folder / "bees"), ""))
    theirs.request("GET", target)
    reply = theirs.getresponse()
    wanted = orjson.loads(reply.read())
    found = asyncio.run(ask_app(app, target))
    assert (found.status, round_scores(found.json)) == (reply.status, round_scores(wanted))


@pytest.mark.parametrize(
    ("target", "status"),
    [
        pytest.param("/v1/bees/search", 400, id="no query"),
        pytest.param("/v1/bees/search?query=a&hits=x", 400, id="hits no number"),
        pytest.param("/v1/bees/search?query=a&hits=-1", 400, id="hits below 1"),
        pytest.param("/v1/bees/search?query=a&parse=maybe", 400, id="parse no truth"),
        pytest.param("/v1/bees/doc/none", 404, id="no document"),
        pytest.param("/v1/bees", 404, id="no route"),
    ],
)
def test_errors_have_the_same_status_and_key(app: Any, theirs: HTTPConnection, target: str, status: int) -> None:
    theirs.request("GET", target)
    reply = theirs.getresponse()
    wanted = orjson.loads(reply.read())
    found = asyncio.run(ask_app(app, target))
    assert (found.status, list(found.json)) == (status, list(wanted)) == (reply.status, ["error"])
