"""`keystone serve` as a process: our `rest:` corpus and castorini's documented calls work, and no call is lost."""

import os
import signal
import tomllib
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread
from typing import Any

import orjson
import pytest
import yaml
from packaging.requirements import Requirement

from keystone.indexing.attached import rest_server
from keystone.indexing.attached.rest_store import adopt_server
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.retrieval.backends import open_sparse, open_store
from keystone.runs.cli.commands.serve_command import serve
from tests.support.indexes.small_corpus import CORPUS
from tests.support.models.plain_model import say
from tests.support.places import ROOT
from tests.support.servers.chat import serving
from tests.support.servers.keystone_server import Served, find_worker, keystone_server
from tests.support.waiting import LIMIT_S, join

TEXTS = ["honey bees in the kitchen", "ash of a volcano", "insects", "zzyzx"]
CLIENTS = 16
TEXTS_OF_ONE = {"title": str, "contents": str}
HIT = {"docid": str, "score": float}
SEARCH = {
    "api": str,
    "index": str,
    "query": {"text": str},
    "candidates": [{**HIT, "rank": int, "doc": TEXTS_OF_ONE}],
}
FIRST_SEARCH = {"query": {"text": str, "qid": str}, "candidates": [{**HIT, "doc": TEXTS_OF_ONE}]}
DOCUMENT = {"api": str, "index": str, "docid": str, "doc": TEXTS_OF_ONE}
SEGMENT = {**DOCUMENT, "doc": {"title": str, "segment": str}}


@pytest.fixture(scope="module")
def served(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with keystone_server(index.folder, tmp_path_factory.mktemp("served")) as found:
        yield found


def get(served: Served, target: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", served.port, timeout=LIMIT_S)
    connection.request("GET", target)
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    return reply.status, body


def rank(index: Index) -> list[list[tuple[str, float]]]:
    store = open_store(index)
    found = open_sparse(index, store).search([str(i) for i in range(len(TEXTS))], TEXTS, 5)
    return [list(zip(store.ids(found.of(i)), found.scores_of(i).tolist(), strict=True)) for i in range(len(TEXTS))]


@pytest.mark.slow
def test_a_server_needs_no_uvloop(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has none, so set-up leaves it out there."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (loop,) = (one for one in map(Requirement, needed) if one.name == "uvloop")
    assert loop.marker is not None
    assert not loop.marker.evaluate({"sys_platform": "win32"})
    (tmp_path / "uvloop.py").write_text("raise ImportError('as if it were not installed')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    with keystone_server(index.folder, tmp_path) as found:
        status, body = get(found, "/v1/index/search?query=honey+bees")
    assert (status, bool(orjson.loads(body)["candidates"])) == (200, True)


@pytest.mark.slow
@pytest.mark.parametrize("form", rest_server.FORMS)
def test_the_rest_corpus_has_the_rankings_and_scores_of_the_local_index(
    served: Served, index: Index, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_server, "FORMS", {form: rest_server.FORMS[form]})
    remote, _ = adopt_server(Path(f"rest:{served.url}/index"), tmp_path / "remote")
    assert remote.at["api"] == form
    assert rank(remote) == rank(index)
    store = open_store(remote)
    (bees,) = store.get(store.rows(["bees"]))
    assert bees.text == CORPUS["bees"][1]
    assert bees.title == ("Bees" if form == "v1" else "")  # the older form gives the text alone


def outline(value: Any) -> Any:
    """The keys and the types of a reply; a list is as its first item."""
    if isinstance(value, dict):
        return {key: outline(own) for key, own in value.items()}
    return [outline(value[0])] if isinstance(value, list) else type(value)


@pytest.mark.parametrize(
    ("target", "reply"),
    [  # as castorini's repositories have them, with the name of this index, of its documents and of its segments
        pytest.param("/v1/index/search?query=honey+bees&hits=3", SEARCH, id="RAGDoll: search"),
        pytest.param("/v1/index/doc/bees", DOCUMENT, id="RAGDoll: read a document"),
        pytest.param("/v1/index/doc/bees%23w0_0", SEGMENT, id="RAGDoll: read a cited segment"),
        pytest.param("/v1/index/search?query=what%20are%20bees&hits=50", SEARCH, id="castorini-skills: curl pipelines"),
        pytest.param("/v1/{ends}/search?query=honey%20bees&hits=2", SEARCH, id="castorini-skills: path as index"),
        pytest.param("/v1/{ends}/doc/bees", DOCUMENT, id="castorini-skills: a document of a path"),
        pytest.param("/v1/index/search?query=what%20is%20a%20bee", SEARCH, id="umbrela, ragnarok, nuggetizer"),
        pytest.param("/v1/index/search?query=what%20is%20a%20bee&hits=5", SEARCH, id="Anserini's skills: search"),
        pytest.param(
            "/v1/index/search?query=bees&hits=5&qid=e-1&question=Who%3F&run_id=e&agent=codex%2Fv1&step=0",
            SEARCH,
            id="a search of an agent",
        ),
        pytest.param(
            "/v1/index/doc/bees?qid=e-1&question=Who%3F&run_id=e&agent=codex%2Fv1&step=1",
            DOCUMENT,
            id="a document for an agent",
        ),
        pytest.param("/v1/index/search?query=honey%20bees&hits=5&k1=0.8&b=0.3", SEARCH, id="Pyserini: BM25"),
        pytest.param("/v1/index/search?query=honey&hits=5&max_doc_length=500", SEARCH, id="Pyserini: cut hits"),
        pytest.param("/v1/index/doc/bees?max_doc_length=500", DOCUMENT, id="Pyserini: a cut document"),
        pytest.param("/v1/index/doc/bees?parse=false", {**DOCUMENT, "doc": str}, id="Pyserini: a document as stored"),
        pytest.param("/v1/{parent}/index/search?query=honey", SEARCH, id="Pyserini: a relative path"),
        pytest.param("/v1/{folder}/doc/bees", DOCUMENT, id="Pyserini: an absolute path"),
        pytest.param("/v1/indexes/index/search?query=what%20is%20a%20bee&hits=1", SEARCH, id="below indexes: search"),
        pytest.param("/v1/indexes/index/doc/bees", DOCUMENT, id="below indexes: a document"),
        pytest.param("/v1/indexes/index/documents/bees", {"id": str, **TEXTS_OF_ONE}, id="Pyserini 1: a document"),
        pytest.param(
            "/api/v1.0/indexes/index/search?query=How%20do%20bees", FIRST_SEARCH, id="Pyserini: MS MARCO V2.1"
        ),
        pytest.param(
            "/api/v1.0/indexes/index/search?query=honey&hits=20&qid=1234", FIRST_SEARCH, id="rank_llm: search"
        ),
    ],
)
def test_documented_calls_work_as_written(served: Served, index: Index, target: str, reply: Any) -> None:
    folder = index.folder.resolve()
    names = {"ends": f"{folder.parent.name}%2Findex", "parent": folder.parent.name, "folder": folder}
    status, body = get(served, target.format(**names))
    assert (status, outline(orjson.loads(body))) == (200, reply)


def test_the_reply_to_rank_llm_has_the_id_of_its_query(served: Served) -> None:
    first = orjson.loads(get(served, "/api/v1.0/indexes/index/search?query=honey&hits=20&qid=1234")[1])
    newer = orjson.loads(get(served, "/v1/index/search?query=honey&hits=20")[1])
    assert first["query"] == {"text": "honey", "qid": "1234"}
    assert [(one["docid"], one["score"], one["doc"]) for one in first["candidates"]] == [
        (one["docid"], one["score"], one["doc"]) for one in newer["candidates"]
    ]


def check(value: Any, schema: Any, description: Any) -> None:
    """Assert that a reply has the keys that a schema of OpenAPI requires, and none that it does not name."""
    if reference := schema.get("$ref"):
        schema = description
        for name in reference.removeprefix("#/").split("/"):
            schema = schema[name]
    if items := schema.get("items"):
        assert value
        for one in value:
            check(one, items, description)
    elif own := schema.get("properties"):
        assert set(schema["required"]) <= set(value) <= set(own)
        for name in value:
            check(value[name], own[name], description)


def test_replies_are_as_the_description_of_the_paths_has_them(served: Served) -> None:
    description = yaml.safe_load(get(served, "/openapi.yaml")[1])
    assert len(description["paths"]) == 5
    for path, asked in description["paths"].items():
        name = "bees%23w0_0" if "/segment/" in path else "bees"
        for index, code, expected in (("index", 200, "200"), ("other", 400, "default")):
            status, body = get(served, f"/v1{path.format(index=index, id=name)}?query=bees")
            reply = description["components"]["responses"][asked["get"]["responses"][expected]["$ref"].split("/")[-1]]
            check(orjson.loads(body), reply["content"]["application/json"]["schema"], description)
            assert status == code


def test_health_and_metrics(served: Served) -> None:
    assert get(served, "/health") == (200, b'{"status":"ok"}')
    status, body = get(served, "/metrics")
    assert status == 200
    assert b"# TYPE keystone_bm25_batches_total counter\n" in body


@pytest.mark.slow
@pytest.mark.parametrize("options", [pytest.param([], id="one process"), pytest.param(["--workers", "2"], id="two")])
def test_sigterm_under_load_loses_no_accepted_call(index: Index, tmp_path: Path, options: list[str]) -> None:
    replies: list[bytes] = []
    lost: list[str] = []
    enough = Event()

    def ask_until_refused(port: int, number: int) -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        try:
            connection.connect()
            for step in range(100_000):
                method = "&method=dense" if step == 20 else ""  # a worker gives such a connection back
                connection.request("GET", f"/v1/index/search?query=bees+{number}+{step}&hits=3{method}")
                reply = connection.getresponse()
                replies.append(reply.read())
                if len(replies) > 40 * CLIENTS:
                    enough.set()
                if reply.getheader("connection") == "close":
                    return
        except Exception as error:
            lost.append(repr(error))

    with keystone_server(index.folder, tmp_path, *options) as own:
        clients = [Thread(target=ask_until_refused, args=(own.port, number)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        assert enough.wait(LIMIT_S)
        worker = find_worker(own)
        assert bool(worker) == bool(options)
        own.process.send_signal(signal.SIGTERM)
        for client in clients:
            join(client, "a client of a server that stops")
        assert own.process.wait(LIMIT_S) == 0
        assert lost == []
        assert all(orjson.loads(body)["candidates"] for body in replies)
        assert len(own.log.read_bytes().splitlines()) == len(replies)
        assert not worker or not Path(f"/proc/{worker}").exists()
        assert (tmp_path / "errors.txt").read_bytes() == b""


@pytest.mark.slow
def test_a_request_that_takes_too_long_is_refused(index: Index, tmp_path: Path) -> None:
    with serving(model=say, latency=20) as model:
        settings = [f"model={{name: plain, urls: ['{model.url}'], window: 4096}}", "queries.method=model"]
        options = [part for one in settings for part in ("--set", one)]
        with keystone_server(index.folder, tmp_path, *options, "--reply-seconds", "0.5") as own:
            status, body = get(own, "/v1/index/search?method=decomposed&query=How+do+honey+bees+live%3F")
    assert (status, b"within 0.5 seconds" in body) == (504, True)


def test_a_port_in_use_and_a_host_without_token_are_errors(
    served: Served, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KEYSTONE_API_TOKEN", raising=False)
    with pytest.raises(UserError, match=f"--port {served.port}: cannot be bound"):
        serve(index.folder, port=served.port, log=tmp_path / "log.jsonl")
    with pytest.raises(UserError, match=r"--host: found 0\.0\.0\.0"):
        serve(index.folder, host="0.0.0.0", log=tmp_path / "log.jsonl")
