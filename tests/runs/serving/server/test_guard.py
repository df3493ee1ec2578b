"""Requests that the guard refuses get an error in JSON, and the application never sees them."""

import asyncio
from typing import Any

import pytest

from keystone.indexing.errors import UserError
from keystone.runs.serving.call_log import Reply
from keystone.runs.serving.server.guard import TOKEN_VARIABLES, Guard, GuardedApp, choose_guard
from keystone.runs.serving.server.json_replies import send_json
from keystone.runs.serving.server.metrics import Metrics
from tests.support.servers.asgi import Answered, ask_app
from tests.support.waiting import LIMIT_S

TOKEN = "sesame"
LOCAL, REMOTE = Guard(body_bytes=100, body_s=0.05, reply_s=0.05), Guard(TOKEN, body_bytes=100)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/sleep":
        await asyncio.sleep(LIMIT_S)
    if scope["path"] == "/fail":
        raise ZeroDivisionError
    body = (await receive())["body"] if scope["method"] == "POST" else b"{}"
    await send_json(send, Reply(body))


def ask(guard: Guard, target: str = "/v1/index/search", body: bytes | None = None, **headers: str) -> Answered:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(
        ask_app(GuardedApp(echo, guard, Metrics()), target, "GET" if body is None else "POST", body, named)
    )


@pytest.mark.parametrize(
    ("guard", "request_parts", "status"),
    [
        pytest.param(LOCAL, {}, 200, id="this machine"),
        pytest.param(LOCAL, {"host": "127.0.0.1:8081"}, 200, id="this machine by its address"),
        pytest.param(LOCAL, {"host": "[::1]:8081"}, 200, id="this machine by IPv6"),
        pytest.param(LOCAL, {"host": "evil.example"}, 403, id="a page that names this machine anew"),
        pytest.param(LOCAL, {"sec_fetch_site": "cross-site"}, 403, id="a page of another site"),
        pytest.param(LOCAL, {"sec_fetch_site": "same-origin"}, 200, id="the page of this server"),
        pytest.param(LOCAL, {"origin": "https://evil.example"}, 403, id="a page of another site in an old browser"),
        pytest.param(LOCAL, {"origin": "null"}, 403, id="a page without a site"),
        pytest.param(
            LOCAL, {"origin": "http://localhost:9", "host": "localhost:8081"}, 403, id="a page of another port"
        ),
        pytest.param(
            LOCAL, {"origin": "http://localhost:8081", "host": "localhost:8081"}, 200, id="the page in an old browser"
        ),
        pytest.param(
            LOCAL, {"origin": "http://evil.example", "sec_fetch_site": "same-origin"}, 200, id="behind a proxy"
        ),
        pytest.param(
            REMOTE, {"x_api_key": TOKEN, "origin": "http://evil.example"}, 403, id="another site's page with the token"
        ),
        pytest.param(LOCAL, {"sec_fetch_site": "cross-site", "target": "/"}, 200, id="a link to the page"),
        pytest.param(LOCAL, {"body": b'{"a": [1]}'}, 200, id="a body"),
        pytest.param(LOCAL, {"body": b"x" * 101}, 413, id="a body too large"),
        pytest.param(LOCAL, {"body": b"x" * 101, "content_length": "5"}, 413, id="a body larger than it says"),
        pytest.param(Guard(), {"body": b"[" * 300 + b"]" * 300}, 400, id="JSON too deep"),
        pytest.param(LOCAL, {"body": b'{"a": '}, 400, id="JSON that breaks off"),
        pytest.param(LOCAL, {"target": "/sleep"}, 504, id="an answer too late"),
        pytest.param(REMOTE, {}, 401, id="no token"),
        pytest.param(REMOTE, {"authorization": "Bearer wrong"}, 401, id="a wrong token"),
        pytest.param(REMOTE, {"authorization": TOKEN}, 401, id="a token without its scheme"),
        pytest.param(REMOTE, {"authorization": "Bearer "}, 401, id="an empty token"),
        pytest.param(REMOTE, {"authorization": f"bearer {TOKEN}", "host": "any.example"}, 200, id="the token"),
        pytest.param(REMOTE, {"x_api_key": TOKEN}, 200, id="the token as Pyserini's header"),
        pytest.param(REMOTE, {"target": "/health"}, 200, id="health needs no token"),
        pytest.param(REMOTE, {"target": "/"}, 200, id="the page needs no token"),
        pytest.param(REMOTE, {"target": "/openapi.yaml"}, 200, id="the description needs no token"),
        pytest.param(Guard(requests=0), {}, 429, id="too many requests"),
    ],
)
def test_refusals(guard: Guard, request_parts: dict[str, Any], status: int) -> None:
    found = ask(guard, **request_parts)
    assert found.status == status
    assert found.headers["content-type"] == "application/json"
    if status != 200:
        assert list(found.json) == ["error"]
    if status == 429:
        assert found.headers["retry-after"] == "1"


def test_a_body_that_comes_too_slowly_is_refused() -> None:
    async def receive_slowly() -> Any:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [(b"host", b"localhost"), (b"content-length", b"9")],
    }
    asyncio.run(GuardedApp(echo, Guard(body_s=0.05), Metrics())(scope, receive_slowly, send))
    assert sent[0]["status"] == 408


def test_a_host_for_other_machines_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TOKEN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        assert choose_guard(host).token is None
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(UserError, match=f"--host: found {host}.*KEYSTONE_API_TOKEN"):
            choose_guard(host)
    for name in reversed(TOKEN_VARIABLES):  # the first variable counts most
        monkeypatch.setenv(name, f"token-{name}")
        assert choose_guard("0.0.0.0").token == f"token-{name}"
    assert TOKEN_VARIABLES[0] not in repr(choose_guard("0.0.0.0"))


def test_a_fault_of_the_program_gets_an_error_and_goes_on_to_the_server() -> None:
    async def serve(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(ZeroDivisionError) as raised:
            await GuardedApp(echo, LOCAL, Metrics())(scope, receive, send)
        assert raised.value.__notes__ == ["The request: GET '/fail'"]

    found = asyncio.run(ask_app(serve, "/fail"))
    assert (found.status, found.json) == (500, {"error": "Internal server error"})


def test_metrics_count_each_request_by_front_and_status() -> None:
    metrics = Metrics()
    app = GuardedApp(echo, LOCAL, metrics)

    async def ask_all() -> None:
        for target in ("/v1/x", "/v1/y", "/v1/answers", "/mcp"):
            await ask_app(app, target)
        with pytest.raises(ZeroDivisionError):
            await ask_app(app, "/fail")

    asyncio.run(ask_all())
    lines = list(metrics.format_lines())
    assert 'keystone_requests_total{front="rest",status="200"} 2' in lines
    assert 'keystone_requests_total{front="web",status="200"} 1' in lines
    assert 'keystone_requests_total{front="web",status="500"} 1' in lines
    assert 'keystone_request_seconds_count{front="mcp"} 1' in lines
    assert 'keystone_request_seconds_bucket{front="rest",le="+Inf"} 2' in lines
    assert "keystone_requests_under_way 0" in lines


@pytest.mark.parametrize("given", ["a", "3f2a-b.c:9", "~" * 128])
def test_a_reply_repeats_the_id_of_its_request(given: str) -> None:
    for guard in (LOCAL, REMOTE):  # answered, and refused
        assert ask(guard, x_request_id=given).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a b", "a\tb", "~" * 129])
def test_a_reply_without_a_usable_id_of_its_request_has_a_new_one(given: str) -> None:
    found = [ask(LOCAL, x_request_id=given).headers["x-request-id"] for _ in range(2)]
    assert found[0] != found[1]
    assert all(len(one) == 32 for one in found)
