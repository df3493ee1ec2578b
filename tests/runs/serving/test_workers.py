"""Workers of `keystone serve`: two processes answer as one does, and none of their ends loses a request."""

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.builds.update import update_index
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.cli.commands.serve_command import serve
from keystone.runs.serving.workers import measure_request
from tests.support.servers.keystone_server import Served, find_worker, keystone_server
from tests.support.waiting import LIMIT_S, wait_until

CLIENTS = 8
CLOSE = b"Connection: close\r\n"


def make_get(target: str, headers: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: 1\r\n%b\r\n" % (target.encode(), headers)


def make_post(target: str, body: bytes, headers: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return make_get(target, length + headers).replace(b"GET", b"POST", 1) + body


SEARCH = make_get("/v1/index/search?query=honey+bees")
LAST = make_get("/v1/index/search?query=ash&hits=2", CLOSE)
HEALTH = make_get("/health")
PYSERINI = make_post("/v1/indexes/index/search", b'{"query": "honey bees"}')
NARRATIVE = b'{"narrative": "How do honey bees live?"}'


@pytest.mark.parametrize(
    ("request_", "is_for_a_worker"),
    [
        pytest.param(SEARCH, True, id="search"),
        pytest.param(PYSERINI, True, id="a body"),
        pytest.param(make_get("/v1/a%2Fb/doc/d%23x?qid=1"), True, id="document"),
        pytest.param(make_get("/v1/indexes"), True, id="the list of indexes"),
        pytest.param(make_get("/api/v1.0/indexes/index/search?query=a"), True, id="Anserini's first server"),
        pytest.param(make_get("/v1/index/search?query=amethod=b&q=method%3D"), True, id="words as the parameter"),
        pytest.param(make_get("/v1/a%20b/doc/a%20b"), True, id="spaces"),
        pytest.param(make_get("/v1/index/search?query=a&method=dense"), False, id="another system"),
        pytest.param(make_get("/v1/index/search?query=a&met%68od=dense"), False, id="an encoded parameter"),
        pytest.param(make_get("/v1/index/queries?query=a"), False, id="queries of a narrative"),
        pytest.param(make_get("/v1/index/quer%69es?query=a"), False, id="an encoded path"),
        pytest.param(make_post("/v1/answers", b"{}"), False, id="answers"),
        pytest.param(make_post("/v1/answers#x", b"{}"), False, id="a fragment"),
        pytest.param(make_post("/v1/answ%65rs", b"{}"), False, id="encoded answers"),
        pytest.param(PYSERINI.replace(b"Length: ", b"Length: " + b"0" * 16), False, id="a length of many digits"),
        pytest.param(HEALTH, False, id="health"),
        pytest.param(make_get("/"), False, id="page"),
        pytest.param(SEARCH.replace(b"GET", b"HEAD"), False, id="HEAD"),
        pytest.param(SEARCH[:-2], False, id="half a head"),
        pytest.param(PYSERINI.replace(b"Content-Length: 23", b"Transfer-Encoding: chunked"), False, id="chunks"),
        pytest.param(PYSERINI.replace(b"Host:", b"Content-Length: 1\r\nHost:"), False, id="two lengths"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\r\n\r\n", False, id="TLS"),
        pytest.param(b"hello\r\n\r\n", False, id="no HTTP"),
    ],
)
def test_a_worker_reads_only_whole_heads_of_requests_that_need_no_model(request_: bytes, is_for_a_worker: bool) -> None:
    head = request_[: request_.find(b"\r\n\r\n") + 4] if b"\r\n\r\n" in request_ else request_
    for read in (request_, head, *([request_ + SEARCH] if head.endswith(b"\r\n\r\n") else [])):
        assert measure_request(read) == (len(request_) if is_for_a_worker else 0)


@pytest.fixture(scope="module")
def alone(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with keystone_server(index.folder, tmp_path_factory.mktemp("alone")) as found:
        yield found


@pytest.fixture(scope="module")
def shared(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with keystone_server(index.folder, tmp_path_factory.mktemp("shared"), "--workers", "2") as found:
        yield found


def talk(served: Served, *parts: bytes) -> bytes:
    """Send parts over one connection, and return all that comes back until the server closes it."""
    with socket.create_connection(("127.0.0.1", served.port), LIMIT_S) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(0.02)
        found = b"".join(iter(lambda: connection.recv(2**16), b""))
    return re.sub(rb"x-request-id: [0-9a-f]{32}", b"", found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([LAST], id="one search"),
        pytest.param([SEARCH, PYSERINI, SEARCH, LAST], id="several searches"),
        pytest.param([SEARCH + PYSERINI + SEARCH + LAST], id="searches at once"),
        pytest.param([SEARCH, HEALTH, SEARCH, LAST], id="another request between searches"),
        pytest.param([SEARCH + HEALTH + SEARCH + LAST], id="another request between searches, at once"),
        pytest.param([SEARCH + HEALTH[:30], HEALTH[30:] + LAST], id="half of another request after a search"),
        pytest.param([SEARCH[:7], SEARCH[7:] + LAST], id="half a line"),
        pytest.param([PYSERINI[:-23], PYSERINI[-23:-9], PYSERINI[-9:] + LAST], id="a body in parts"),
        pytest.param([make_post("/v1/answers", NARRATIVE), SEARCH, LAST], id="an answer"),
        pytest.param([make_get("/v1/index/search?query=bees&method=hybrid"), LAST], id="a search by all systems"),
        pytest.param([make_get("/v1/index/queries?query=Why+bees%3F+How%3F", CLOSE)], id="queries"),
        pytest.param([make_get("/v1/index/doc/bees"), make_get("/v1/index/doc/none", CLOSE)], id="documents"),
        pytest.param([make_post("/v1/indexes/index/search", b'{"query": 7}'), LAST], id="a body of another form"),
        pytest.param([make_post("/v1/indexes/index/search", b"x" * (2**20 + 1))], id="a body that is too long"),
        pytest.param([make_post("/v1/answers", b'{"narrative": "%b"}' % (b"bees " * 60_000), CLOSE)], id="a long body"),
        pytest.param([make_get("/v1/index/search?query=bees", b"Bad Header\r\n")], id="a header without a colon"),
        pytest.param([LAST.replace(b"localhost", b"example.org")], id="another host"),
        pytest.param([LAST.replace(b"GET", b"HEAD")], id="HEAD"),
        pytest.param([LAST.replace(b"1.1", b"1.0")], id="HTTP/1.0"),
    ],
)
def test_both_processes_answer_as_one_process_does(alone: Served, shared: Served, parts: list[bytes]) -> None:
    expected = talk(alone, *parts)
    assert expected.startswith(b"HTTP/1.1 ")
    assert [talk(shared, *parts), talk(shared, *parts)] == [expected, expected]


def list_client_ports(process: int) -> set[int]:
    """The ports of the clients whose connections a process has open."""
    own = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):  # the process has just closed it
            own.add(link.readlink().name)
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2].rpartition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in own}


def ask(connection: HTTPConnection, target: str) -> Any:
    connection.request("GET", target)
    return orjson.loads(connection.getresponse().read())


def read_metric(served: Served, name: str) -> float:
    connection = HTTPConnection("127.0.0.1", served.port, timeout=LIMIT_S)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])


@pytest.mark.slow
def test_connections_go_to_both_processes_whose_calls_are_counted_and_logged_together(shared: Served) -> None:
    count, logged = "keystone_bm25_queries_total", len(shared.log.read_bytes().splitlines())
    before = read_metric(shared, count)
    clients = [HTTPConnection("127.0.0.1", shared.port, timeout=LIMIT_S) for _ in range(CLIENTS)]
    for step in range(5):
        for client in clients:
            assert ask(client, f"/v1/index/search?query=bees+{step}")["candidates"]
    assert read_metric(shared, count) == before + 5 * CLIENTS
    wait_until(lambda: len(shared.log.read_bytes().splitlines()) == logged + 5 * CLIENTS, "the log")
    assert all(map(orjson.loads, shared.log.read_bytes().splitlines()))
    ports = {client.sock.getsockname()[1] for client in clients}
    assert len(ports & list_client_ports(find_worker(shared))) == CLIENTS // 2
    for client in clients:
        client.close()


@pytest.mark.slow
def test_another_worker_takes_the_place_of_one_that_was_killed(index: Index, tmp_path: Path) -> None:
    count = "keystone_bm25_queries_total"
    with keystone_server(index.folder, tmp_path, "--workers", "2") as own:
        before = find_worker(own)
        talk(own, LAST), talk(own, LAST)
        assert read_metric(own, count) == 2
        os.kill(before, signal.SIGTERM)  # only the first process stops it
        os.kill(before, signal.SIGKILL)
        said = tmp_path / "errors.txt"
        wait_until(said.read_bytes, "the server to tell the end of the worker")
        for _ in range(4):
            assert b"candidates" in talk(own, LAST)
        assert said.read_text() == "a worker has ended; another one starts in 2 seconds\n"
        assert read_metric(own, count) == 6
        after = wait_until(lambda: find_worker(own), "another worker")
        idle = [socket.create_connection(("127.0.0.1", own.port), LIMIT_S)]

        def take_one_more() -> bool:
            idle.append(socket.create_connection(("127.0.0.1", own.port), LIMIT_S))
            return bool(list_client_ports(after) & {one.getsockname()[1] for one in idle})

        wait_until(take_one_more, "the new worker to take connections")
        for _ in range(4):
            assert b"candidates" in talk(own, LAST)
        assert read_metric(own, count) == 10
        wait_until(lambda: len(own.log.read_bytes().splitlines()) == 10, "the log")
        own.process.kill()
        wait_until(lambda: not Path(f"/proc/{after}").exists(), "the end of a worker whose first process is gone")
        for one in idle:
            one.close()


@pytest.mark.slow
def test_a_worker_takes_the_index_that_the_folder_holds_by_now(tmp_path: Path) -> None:
    corpus, folder, settings = tmp_path / "corpus.jsonl", tmp_path / "index", BuildSettings(embedding=None)
    corpus.write_text('{"id": "a", "text": "honey bees"}\n')
    build_index(corpus, folder, settings)
    with keystone_server(folder, tmp_path, "--workers", "2") as own:
        clients = [HTTPConnection("127.0.0.1", own.port, timeout=LIMIT_S) for _ in range(4)]

        def find() -> set[str]:
            found = [ask(client, "/v1/index/search?query=bees")["candidates"] for client in clients]
            return {one["docid"] for candidates in found for one in candidates}

        assert find() == {"a"}
        corpus.write_text('{"id": "b", "text": "honey bees"}\n')
        gone = tmp_path / "gone.txt"
        gone.write_text("a\n")
        update_index(folder, [corpus], gone)
        wait_until(lambda: find() == {"b"}, "both processes to take the new index")


def test_workers_need_a_port(index: Index) -> None:
    with pytest.raises(UserError, match="--workers: expected without --stdio"):
        serve(index.folder, stdio=True, workers=2)
