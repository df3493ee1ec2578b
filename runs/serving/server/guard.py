"""The guard in front of all routes: who may ask, how much, how many at once, and how long.

A request that it refuses gets an error in JSON and nothing else.
"""

import asyncio
import hmac
import re
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from random import getrandbits

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keystone.indexing.errors import UserError
from keystone.indexing.io.api_keys import read_key
from keystone.indexing.io.json_values import parse_json
from keystone.runs.serving.server import HEADERS, REPLY_S, WHOLE
from keystone.runs.serving.server.json_replies import make_error, send_json
from keystone.runs.serving.server.metrics import Metrics

TOKEN_VARIABLES = ("KEYSTONE_API_TOKEN", "PYSERINI_API_TOKEN", "CASTORINI_API_TOKEN")
"""The environment variables that may hold the token, the first one first."""
OTHER_SITES = (b"cross-site", b"same-site")
"""The header `Sec-Fetch-Site` by which a browser tells that another page asks. A call may cost its owner money."""
OPEN_PATHS = frozenset({"/", "/health", "/openapi.yaml", "/openapi.json", "/docs"})
"""The paths that need no token. They show nothing of the index, and the page asks its reader for the token."""
RETRY_AFTER_S = 1
DRAINED_BYTES = 2**24
"""The most bytes that are read and dropped after an error. A client that still sends its body then reads the error."""
_REQUEST_ID = re.compile(rb"[!-~]{1,128}")
"""An id of a request that the reply repeats: visible letters of ASCII."""


Headers = Mapping[bytes, bytes]
"""The headers of a request by their names in lower case; of several with one name, the last."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules of a server. Without a `token`, only requests to this machine's own names are answered."""

    token: str | None = field(default=None, repr=False)
    body_bytes: int = 2**20
    requests: int = 512
    """The most requests under way."""
    body_s: float = 10.0
    """How long the body of a request may take."""
    reply_s: float = REPLY_S
    """How long a request may wait until its reply begins."""


def choose_guard(host: str, reply_s: float = REPLY_S) -> Guard:
    """Choose the guard of a server that is bound to this host.

    `UserError` if other machines can reach the host and there is no token.
    """
    token = next((found for name in TOKEN_VARIABLES if (found := read_key(name))), None)
    if token is None and not is_local(host):
        raise UserError(
            f"--host: found {host}, which other machines can reach, without a token; "
            f"expected one in {TOKEN_VARIABLES[0]}, or --host 127.0.0.1"
        )
    return Guard(token, reply_s=reply_s)


def is_local(host: str) -> bool:
    """Tell whether a host is this machine and can be reached from nowhere else."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class _Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Body:
    def __init__(self, scope: Scope, headers: Headers, receive: Receive, seconds: float) -> None:
        self.unread = b"content-length" in headers or b"transfer-encoding" in headers
        self._scope, self._receive = scope, receive
        self._ends = asyncio.get_running_loop().time() + seconds

    async def read(self, most_bytes: int) -> bytes:
        """Read to the end of the body, or until more than `most_bytes` have come. `TimeoutError` at the deadline."""
        parts = bytearray()
        async with nullcontext() if WHOLE in self._scope else asyncio.timeout_at(self._ends):
            while self.unread and len(parts) <= most_bytes:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    self.unread = False
                    raise _Refusal(400, "body: the client has gone")
                parts += message.get("body", b"")
                self.unread = message.get("more_body", False)
        return bytes(parts)

    async def drop(self, most_bytes: int) -> None:
        """Read as `read` does, and keep nothing."""
        with suppress(TimeoutError, _Refusal):
            while self.unread and most_bytes > 0:
                most_bytes -= len(await self.read(0))


class GuardedApp:
    """The ASGI application behind a guard."""

    def __init__(self, app: ASGIApp, guard: Guard, metrics: Metrics) -> None:
        self._app, self._guard, self._metrics = app, guard, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it.

        After a fault of the program the client gets status 500. The fault then goes on to the server, which logs it and
        closes the connection.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, metrics = time.perf_counter(), 0, self._metrics
        headers: Headers = dict(scope["headers"])
        body = _Body(scope, headers, receive, self._guard.body_s)
        request_id = (b"x-request-id", _name_request(headers))
        scope[HEADERS] = [request_id]

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                limit.reschedule(None)
                message = {**message, "headers": [*message["headers"], *scope[HEADERS]]}
            await send(message)

        async def refuse(refusal: _Refusal) -> None:
            nonlocal status
            if status:  # the answer has begun, so the connection ends without its rest
                raise refusal
            status = refusal.status
            await _send_refusal(send, refusal, request_id, body.unread)

        metrics.under_way += 1
        try:
            async with asyncio.timeout(self._guard.reply_s) as limit:
                self._check(scope, headers)
                await self._app(scope, await self._take_body(body, receive), watch)
        except _Refusal as refusal:
            await refuse(refusal)
        except TimeoutError:
            await refuse(_Refusal(504, f"no answer within {self._guard.reply_s:g} seconds"))
        except Exception as error:
            error.add_note(f"The request: {scope['method']} {scope['path']!r}")
            if not status:
                await refuse(_Refusal(500, "Internal server error"))
            raise
        finally:
            metrics.under_way -= 1
            metrics.count(_name_front(scope["path"]), status, time.perf_counter() - begun)
        if body.unread:
            await body.drop(DRAINED_BYTES)
            await send({"type": "http.response.body"})

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Raise `_Refusal` for a request that is not allowed, or exceeds a limit."""
        guard = self._guard
        if guard.token is None:
            name = headers.get(b"host", b"")
            if not _names_this_machine(name):
                found = name.decode("latin-1").lower()[:100]
                raise _Refusal(403, f"Host: found {found!r}, expected localhost: this server has no token")
        elif scope["path"] not in OPEN_PATHS and not _has_token(headers, guard.token):
            raise _Refusal(401, "Unauthorized: expected the header Authorization: Bearer TOKEN, or X-API-Key: TOKEN")
        if scope["path"] not in OPEN_PATHS and (header := _find_other_site(headers)):
            raise _Refusal(403, f"{header}: found another site's page, expected that of this server")
        if self._metrics.under_way > guard.requests:
            raise _Refusal(429, f"{guard.requests} requests are under way: try again in {RETRY_AFTER_S} second")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > guard.body_bytes:
            raise _Refusal(413, f"body: found {int(length)} bytes, expected at most {guard.body_bytes}")

    async def _take_body(self, body: _Body, receive: Receive) -> Receive:
        """Receive the whole body, unless there is none; returns a function that gives it to the application."""
        if not body.unread:
            return receive
        try:
            found = await body.read(self._guard.body_bytes)
        except TimeoutError:
            raise _Refusal(408, f"body: not whole within {self._guard.body_s:g} seconds") from None
        if len(found) > self._guard.body_bytes:
            raise _Refusal(413, f"body: found more than {self._guard.body_bytes} bytes")
        if found.lstrip().startswith((b"{", b"[")):
            try:
                parse_json(found)
            except ValueError as error:
                raise _Refusal(400, f"body: expected JSON: {error}") from None
        whole: list[Message] = [{"type": "http.request", "body": found, "more_body": False}]

        async def receive_whole() -> Message:
            return whole.pop() if whole else await receive()

        return receive_whole


async def _send_refusal(send: Send, refusal: _Refusal, request_id: tuple[bytes, bytes], more_body: bool) -> None:
    """Send an error. The answer stays open with `more_body`, as long as the body of its request is unread."""
    headers = [(b"connection", b"close")] if refusal.status in (408, 413) else []
    if refusal.status == 429:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send_json(send, make_error(str(refusal), refusal.status), *headers, request_id, more_body=more_body)


@lru_cache
def _names_this_machine(host: bytes) -> bool:
    """Tell whether the header `Host` names this machine itself, with or without a port."""
    return is_local(re.sub(r":\d+$", "", host.decode("latin-1").lower()))


def _name_request(headers: Headers) -> bytes:
    """Return the id that a client gave its request, or a new one."""
    given = headers.get(b"x-request-id", b"")
    return given if _REQUEST_ID.fullmatch(given) else b"%032x" % getrandbits(128)


def _find_other_site(headers: Headers) -> str:
    """Name the header by which a browser tells that another site's page asks; empty if none does.

    A browser that sends no `Sec-Fetch-Site` still names the page's site in `Origin`; for our page that is our host.
    """
    if site := headers.get(b"sec-fetch-site"):
        return "Sec-Fetch-Site" if site in OTHER_SITES else ""
    origin = headers.get(b"origin")
    own = origin is None or origin.partition(b"://")[2].lower() == headers.get(b"host", b"").lower()
    return "" if own else "Origin"


def _has_token(headers: Headers, token: str) -> bool:
    scheme, _, found = headers.get(b"authorization", b"").partition(b" ")
    bearer = found.strip() if scheme.lower() == b"bearer" else b""
    key = headers.get(b"x-api-key", b"").strip()
    return hmac.compare_digest(bearer, token.encode()) | hmac.compare_digest(key, token.encode())


def _name_front(path: str) -> str:
    first = path.split("/", 2)[1] if path.startswith("/") and path != "/v1/answers" else ""
    return {"v1": "rest", "api": "rest", "mcp": "mcp", "health": "state", "metrics": "state"}.get(first, "web")
