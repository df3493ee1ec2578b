"""Hostile servers against each client: one error names the URL, in bounded memory and time.

A key goes only to the server that it is meant for.
"""

import gzip
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.attached import rest_server as rest
from keystone.indexing.attached.rest_server import Server
from keystone.indexing.errors import TooLarge, Unreached, UserError, printable
from keystone.indexing.io import api_keys as access
from keystone.indexing.io import retry
from keystone.indexing.io.error_text import describe_error
from keystone.indexing.io.http import HttpRequest, Sender, read_body
from keystone.indexing.opensearch import cluster as opensearch
from keystone.indexing.opensearch.cluster import Request, connect
from keystone.indexing.opensearch.requests import ask
from keystone.indexing.vectors import endpoint as embedding_endpoint
from keystone.indexing.vectors.endpoint import Endpoint
from tests.support.servers.hostile_replies import (
    DEEP,
    NOT_JSON,
    NOT_WHOLE,
    REFUSED,
    SLOW,
    TOO_LARGE,
    UNPACKED_BYTES,
    Hostile,
    send_reply,
)
from tests.support.servers.json_server import JsonHandler, serve_json

pytestmark = pytest.mark.slow

TRIES, REQUEST_TIMEOUT_S = 2, 0.3
"""The time limit of a request."""
GENEROUS_TIMEOUT_S = 60.0
MEMORY_LIMIT_BYTES = UNPACKED_BYTES * 3 // 4
"""Twice the size limit of a client, and less than the decompressed bomb."""

Client = Callable[[str], object]


def embeds(url: str) -> object:
    return Endpoint("letters", url).dimension


def searches_rest(url: str) -> object:
    return Server(url, "index", "v1").search(["words"], 3)


def searches_rest_by_key(url: str) -> object:
    return Server(url, "index", "v1", rest.KEY).search(["words"], 3)


def asks_opensearch(url: str) -> object:
    nodes = connect([url], 1)
    return ask(nodes, Request("GET", "/index", seconds=rest.REPLY_TIMEOUT_S), patience=0.05).checked()


CLIENTS = pytest.mark.parametrize("client", [embeds, searches_rest, asks_opensearch])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(retry, "LONGEST_REST_S", 0.02)
    monkeypatch.setattr(retry, "MOST_TRIES", TRIES)
    for name in ("OPENAI_API_KEY", rest.KEY, opensearch.USER, opensearch.PASSWORD, opensearch.KEY):
        monkeypatch.delenv(name, raising=False)


class Handler(JsonHandler):
    def do_GET(self) -> None:  # noqa: N802
        hostile, seen = self.state
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen.append({name.lower(): value for name, value in self.headers.items()})
        if self.path == "/":  # the cluster says hello
            hostile = send_reply(b'{"version": {"number": "3.5.0"}}')
        hostile(self)

    do_POST = do_GET  # noqa: N815


@contextmanager
def serving(hostile: Hostile) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The URL of a server with these replies, and the headers of the requests that it receives."""
    seen: list[dict[str, str]] = []
    with serve_json(Handler, (hostile, seen)) as url:
        yield url, seen


def refusal(client: Client, hostile: Hostile) -> str:
    """The one line of the error, which names the URL and comes in time."""
    with serving(hostile) as (url, _):
        began = time.monotonic()
        with pytest.raises(UserError) as raised:
            client(url)
        assert time.monotonic() - began < GENEROUS_TIMEOUT_S
        said = str(raised.value)
        assert said.startswith(url)
        assert said.isprintable()
        assert len(said) < 2000
        return said


@CLIENTS
@pytest.mark.parametrize("kind", TOO_LARGE)
def test_a_reply_above_its_limit_is_an_error_in_bounded_memory(client: Client, kind: str) -> None:
    tracemalloc.start()
    try:
        assert "expected" in refusal(client, TOO_LARGE[kind])
        assert tracemalloc.get_traced_memory()[1] < MEMORY_LIMIT_BYTES
    finally:
        tracemalloc.stop()


@CLIENTS
@pytest.mark.parametrize("kind", NOT_WHOLE)
def test_a_reply_that_is_not_whole_is_one_error(client: Client, kind: str) -> None:
    refusal(client, NOT_WHOLE[kind])


@CLIENTS
@pytest.mark.parametrize("kind", SLOW)
def test_the_time_limit_covers_the_whole_reply(client: Client, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rest, embedding_endpoint):
        monkeypatch.setattr(module, "REPLY_TIMEOUT_S", REQUEST_TIMEOUT_S)
    assert f"no whole reply in {REQUEST_TIMEOUT_S:g} s" in refusal(client, SLOW[kind])


@CLIENTS
@pytest.mark.parametrize("kind", NOT_JSON)
def test_a_reply_that_is_no_json_is_one_error(client: Client, kind: str) -> None:
    refusal(client, NOT_JSON[kind])


@CLIENTS
@pytest.mark.parametrize("kind", REFUSED)
def test_the_text_of_a_refusal_is_short_and_printable(client: Client, kind: str) -> None:
    hostile, words = REFUSED[kind]
    said = refusal(client, hostile)
    assert "401" in said
    assert pytest.raises(AssertionError, match=words).matches(AssertionError(said))


@pytest.mark.parametrize("client", [embeds, searches_rest])
@pytest.mark.parametrize("depth", [250, 300, 900])
def test_deeply_nested_json_is_one_error(client: Client, depth: int) -> None:
    for body in (b"[" * depth + b"]" * depth, DEEP, b'{"data": [%b]}' % (b"[" * depth + b"]" * depth)):
        refusal(client, send_reply(body))


@pytest.mark.parametrize("client", [embeds, searches_rest])
@pytest.mark.parametrize("seconds", ["1e308", "9" * 400, "inf", "nan", "-1", "soon", "\u0661"])
def test_an_absurd_retry_after_is_not_waited_for(client: Client, seconds: str) -> None:
    assert "429" in refusal(client, send_reply(b"{}", 429, Retry_After=seconds.encode("utf-8").decode("latin-1")))


@pytest.mark.parametrize(
    ("client", "secrets"),
    [
        pytest.param(embeds, {"OPENAI_API_KEY": "k-e-y"}, id="embeddings"),
        pytest.param(searches_rest_by_key, {rest.KEY: "k-e-y"}, id="rest"),
        pytest.param(asks_opensearch, {opensearch.KEY: "k-e-y"}, id="opensearch"),
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_its_target_is_named(
    client: Client, secrets: dict[str, str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    with serving(send_reply(b"{}")) as (other, seen):
        said = refusal(client, send_reply(b"", status, Location=f"{other}/index"))
        assert f"leads to {other}/index" in said
        assert seen == []


@pytest.mark.parametrize(
    ("client", "name"),
    [(embeds, "OPENAI_API_KEY"), (searches_rest_by_key, rest.KEY), (asks_opensearch, opensearch.KEY)],
)
def test_a_key_that_a_server_repeats_is_in_no_message(
    client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "k-e-y/7")
    with serving(send_reply(b"{}")) as (url, seen), suppress(UserError):
        client(url)
    assert "k-e-y/7" in seen[-1]["authorization"]
    for body in (b'{"error": "k-e-y/7 is unknown"}', rb'{"error": "\u006b-e-y\/7 is unknown"}', b"no k-e-y/7"):
        said = refusal(client, send_reply(body, 401))
        assert "[key]" in said
        assert "e-y/7" not in said
    monkeypatch.setenv(name, "castorini")
    assert "castorini" not in refusal(client, send_reply(b'{"error": "castorini is unknown"}', 401))


@pytest.mark.parametrize(
    ("named", "guarded", "sent"),
    [
        pytest.param(None, True, True, id="by default, where nobody can listen"),
        pytest.param(None, False, False, id="by default, over plain http"),
        pytest.param("MINE", True, True, id="named, where nobody can listen"),
        pytest.param("MINE", False, True, id="named, over plain http"),
    ],
)
def test_an_embedding_endpoint_receives_only_its_own_key(
    named: str | None, guarded: bool, sent: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "general")
    monkeypatch.setenv("MINE", "own")
    monkeypatch.setattr(access, "is_guarded", lambda _: guarded)
    with serving(send_reply(b"{}")) as (url, seen):
        with pytest.raises(UserError):
            _ = Endpoint("letters", url, key_env=named).dimension
        key = "own" if named else "general"
        assert [one.get("authorization") for one in seen] == [f"Bearer {key}" if sent else None]
        assert (f"{url}: is sent no key: OPENAI_API_KEY is not named for it" in caplog.text) == (not sent)


def test_a_named_variable_without_a_key_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINE", raising=False)
    with pytest.raises(UserError, match=r"MINE: holds no key for http://127\.0\.0\.1:1, expected one"):
        Endpoint("letters", "http://127.0.0.1:1", key_env="MINE")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("http://user:pass@h/v1", "holds a user or a password", id="a password"),
        pytest.param("http://h/v1?key=s", "not the URL of a server", id="a query"),
        pytest.param("http://h/v1#s", "not the URL of a server", id="a fragment"),
        pytest.param("ftp://h/v1", "not the URL of a server", id="another scheme"),
        pytest.param("http://h:99999/v1", "not the URL of a server", id="a port that is none"),
        pytest.param("\x1b[2J", r"not the URL of a server", id="control bytes"),
    ],
)
def test_a_text_that_is_no_server_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        Endpoint("letters", url)
    assert "pass" not in str(raised.value).replace("a password", "")
    assert str(raised.value).isprintable()


@given(st.binary(max_size=300), st.integers(0, 300), st.sampled_from(["", "gzip", "deflate", "identity"]))
def test_a_body_is_read_whole_or_refused(content: bytes, limit: int, encoding: str) -> None:
    packed: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
    sent = packed.get(encoding, bytes)(content)
    left = [sent]

    def read(size: int) -> bytes:
        part, left[0] = left[0][: min(size, 7)], left[0][min(size, 7) :]
        return part

    try:
        found = read_body(read, {"Content-Encoding": encoding}, limit)
    except TooLarge:
        assert max(len(sent), len(content)) > limit
    else:
        assert found == content
        assert max(len(sent), len(content)) <= limit


@given(st.text(max_size=2000), st.integers(1, 600))
def test_printable_text_is_one_short_line(text: str, most: int) -> None:
    shown = printable(text, most)
    assert shown.isprintable()
    assert len(shown) <= most
    if text.isprintable() and " ".join(text.split()) == text and len(text) <= most:
        assert shown == text


def test_an_error_without_text_has_no_reason() -> None:
    assert describe_error({"error": {}}) == '{"error":{}}'
    assert describe_error(None) == describe_error("") == "no reason"


def test_a_request_is_sent_again_if_the_server_closes_a_kept_connection() -> None:
    served: set[Any] = set()

    def once(handler: BaseHTTPRequestHandler) -> None:
        """Answer the first request of a connection, and close the connection at the second."""
        handler.close_connection = handler.client_address in served
        if not handler.close_connection:
            served.add(handler.client_address)
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with serving(once) as (url, seen):
        sender = Sender(url)
        assert [sender.send(HttpRequest("GET", "/a"), 5).body for _ in range(4)] == [b"{}"] * 4
        assert (len(seen), len(served)) == (7, 4)


def test_a_server_that_closes_every_connection_is_an_error() -> None:
    def never(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True

    with serving(never) as (url, seen):
        with pytest.raises(Unreached, match="closed"):
            Sender(url).send(HttpRequest("GET", "/a"), 5)
        assert len(seen) == 1
