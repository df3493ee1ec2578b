"""Chat completions over HTTP, from one endpoint or several that serve the same model.

A request goes to the least loaded endpoint. An endpoint that cannot be reached, or that only fails, is rested and then
tried with a single request; what it had been asked goes to the others, or waits. The server's own overload and rest
never make a request fail before `patience` is over; faults of its own replies do, after `TRIES`.
"""

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import aiohttp
import orjson
from yarl import URL

from generation.llm.chat import (
    REPLY_LIMIT_BYTES,
    Answered,
    Dialect,
    Faulty,
    asked_of,
    body_of,
    both,
    other_dialect,
    read_answer,
    refuses_schema,
    words,
)
from generation.llm.settings import KEY, checked
from generation.types import Failure, Request, Usage
from indexing.errors import UserError
from indexing.io.keys import is_guarded, without_key
from indexing.io.limit import Limit, backoff, retry_after
from indexing.io.untrusted_json import parse_json

TRIES = 8
"""Of one request that is answered wrongly."""
TRIES_IN_TIME = 3
"""Of one request that is not answered in time, which tells of the request rather than of the endpoint."""
STREAK = 8
"""Failures one after another for which an endpoint is rested."""
LONGEST_PAUSE, LONGEST_PAUSE_OF_FAULTS = 10.0, 2.0
"""Seconds before a request is sent again to an endpoint that is busy, or that answered it wrongly."""
CONNECT_SECONDS = 20.0
IDLE_SECONDS = 4.0
"""For which a connection is kept; the servers' own limit is often 5."""

_BUSY = (408, 425, 429, 502, 503, 504, 529)
_WRONG = (401, 402, 403, 404, 405)
_log = logging.getLogger(__name__)


class _Busy(Exception):
    """The endpoint, not the request, is at fault."""

    def __init__(self, words: str, wait: float | None = None, reached: bool = True) -> None:
        super().__init__(words)
        self.wait, self.reached = wait, reached


class _TooLate(Faulty):
    """No answer within the time of a call."""


class _Endpoint:
    def __init__(self, url: str, most: int) -> None:
        self.url = url
        self.address = URL(url.rstrip("/") + "/chat/completions")
        self.limit = Limit(most)
        self.dialect = Dialect()
        self.headers: dict[str, str] = {}
        self.flying = self.failures = self.rests = 0
        self.rests_until = self.changed = -float("inf")
        self.failing_since: float | None = None

    def succeeded(self) -> None:
        self.failures = self.rests = 0
        self.failing_since = None

    def missed(self, at: float) -> float:
        """For how many seconds it has been failing while it was asked."""
        return 0.0 if self.failing_since is None else at - self.failing_since


class Endpoints:
    """The `Backend` of endpoints at base URLs such as http://localhost:8000/v1; made within a running event loop.

    `key` is sent as bearer and shown nowhere: where an endpoint repeats it, it is taken out. With `guarded` only those
    endpoints are sent it to which it goes by https, or within this machine.
    """

    def __init__(
        self,
        model: str,
        urls: Sequence[str],
        key: str | None,
        *,
        concurrency: int = 256,
        call_seconds: float = 600.0,
        patience: float = 600.0,
        extra: Mapping[str, Any] | None = None,
        guarded: bool = False,
    ) -> None:
        self._model, self._extra, self._patience, self._key = model, extra, patience, key
        self._endpoints = [_Endpoint(checked(url), concurrency) for url in urls]
        self._waiting: deque[asyncio.Future[_Endpoint]] = deque()
        self._loop = asyncio.get_running_loop()
        self._open, self._idle_since = 0, self._loop.time()
        self.at_once = concurrency * len(urls)
        self.notes: list[str] = []
        for endpoint in self._endpoints if key else ():
            if guarded and not is_guarded(endpoint.url):
                self.notes.append(
                    f"{endpoint.url}: is sent no key: {KEY} is not named by key_env and goes by https alone"
                )
                _log.warning(self.notes[-1])
            else:
                endpoint.headers["Authorization"] = f"Bearer {key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            timeout=aiohttp.ClientTimeout(total=call_seconds, sock_connect=min(call_seconds, CONNECT_SECONDS)),
            headers={"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def answer(self, request: Request) -> Answered:
        """Ask until there is a reply, or none can be had: see `generation.llm.chat.Backend`."""
        if not self._open:  # time in which nobody asked is no time in which nobody answered
            for endpoint in self._endpoints:
                if endpoint.failing_since is not None:
                    endpoint.failing_since += self._loop.time() - self._idle_since
        self._open += 1
        try:
            return await self._answer(request)
        finally:
            self._open -= 1
            self._idle_since = self._loop.time()

    async def _answer(self, request: Request) -> Answered:
        faults = turned_away = late = 0
        seconds, pause, busy_since = 0.0, 0.0, None
        while True:
            endpoint = await self._room(first=not faults and not turned_away)
            sent, answered = self._loop.time(), None
            try:
                answered = await self._ask(endpoint, request)
            except _Busy as error:
                turned_away, busy_since = turned_away + 1, busy_since or self._loop.time()
                self._turned_away(endpoint, error, sent)
                if self._loop.time() - busy_since >= self._patience:
                    answered = Answered(Failure(f"{endpoint.url}: {error}, for {self._patience:g} s"))
                pause = backoff(turned_away, LONGEST_PAUSE) if error.reached and error.wait is None else 0.0
            except Faulty as error:
                faults, busy_since = faults + 1, None
                if isinstance(error, _TooLate):
                    late += 1
                    endpoint.limit.overloaded(sent, self._loop.time())
                if endpoint.rests or not isinstance(error, _TooLate):
                    self._failed(endpoint, str(error), sent)
                if faults == TRIES or late == TRIES_IN_TIME:
                    answered = Answered(Failure(f"{endpoint.url}: {error}, {faults} times"))
                pause = backoff(faults, LONGEST_PAUSE_OF_FAULTS)
            else:
                endpoint.succeeded()
                endpoint.limit.answered(self._loop.time())
            finally:
                endpoint.flying -= 1
                self._hand_out()
            seconds += self._loop.time() - sent
            if answered is not None:
                cost, retries = answered.usage, faults + turned_away
                tokens = cost.prompt_tokens, cost.cached_tokens, cost.completion_tokens
                return Answered(answered.outcome, Usage(1, *tokens, seconds, retries))
            if pause:
                await asyncio.sleep(pause)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _ask(self, endpoint: _Endpoint, request: Request) -> Answered:
        """What the endpoint makes of the request, in the dialect that it then turns out to take."""
        dialect, notes = endpoint.dialect, list[str]()
        while True:
            status, headers, body = await self._post(endpoint, request, dialect)
            if status == 200:
                break
            said = words(body)
            if status in _BUSY and b'"insufficient_quota"' not in body:
                raise _Busy(f"{status}: {said}", retry_after(headers.get("Retry-After")))
            if status in _WRONG or status in _BUSY or 300 <= status < 400:
                raise UserError(f"{endpoint.url}: {self._model}: refused with status {status}: {said}")
            if status >= 500 and endpoint.rests_until > self._loop.time():
                raise _Busy(f"{status}: {said}", reached=False)
            if status >= 500 or status < 300:
                raise Faulty(f"{status}: {said}")
            refusal = body.decode(errors="replace")
            if request.schema is not None and dialect.schemas and refuses_schema(refusal):
                notes.append(f"{endpoint.url}: {self._model} refuses the schema of {request.purpose}: asked without")
                request = replace(request, schema=None)
                continue
            if (other := other_dialect(dialect, refusal)) is None:
                return Answered(Failure(f"{endpoint.url}: refused with status {status}: {said}"))
            dialect = other[0]
            notes.append(f"{endpoint.url}: {self._model} {other[1]}")
        try:
            found = parse_json(body)
        except orjson.JSONDecodeError:
            raise Faulty("an answer that is not JSON") from None
        except ValueError as error:
            raise Faulty(f"an answer that cannot be kept: {error}") from None
        answered = read_answer(found, asked_of(self._body(request, dialect)))
        if notes:  # what was refused for a text that names these fields is refused without them too
            endpoint.dialect = both(endpoint.dialect, dialect)
            self.notes += [note for note in notes if note not in self.notes]
        return answered

    async def _post(
        self, endpoint: _Endpoint, request: Request, dialect: Dialect
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of what the endpoint says; without the key, if that is in it.

        Where the body of an error cannot be read, what is wrong with it stands in its place.
        """
        sent = orjson.dumps(self._body(request, dialect))
        try:
            async with self._session.post(
                endpoint.address, data=sent, headers=endpoint.headers, allow_redirects=False
            ) as response:
                try:
                    body = unpacked(await _read(response), response.headers.get("Content-Encoding", ""))
                except Faulty as error:
                    if response.status == 200:
                        raise
                    body = str(error).encode()
        except aiohttp.ClientConnectorCertificateError as error:
            raise UserError(f"{endpoint.url}: its certificate is not trusted: {error.certificate_error}") from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            why = error.strerror if isinstance(error, aiohttp.ClientConnectorError) else "no connection in time"
            raise _Busy(f"cannot be reached: {why}", reached=False) from None
        except TimeoutError:
            raise _TooLate("no answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            why = f"the connection broke: {type(error).__name__}"
            if endpoint.rests:  # what takes connections for a server that is down breaks them
                raise _Busy(why, reached=False) from None
            raise Faulty(why) from None
        return response.status, response.headers, without_key(body, self._key) if self._key else body

    def _body(self, request: Request, dialect: Dialect) -> dict[str, Any]:
        return body_of(self._model, request, self._extra, dialect)

    def _turned_away(self, endpoint: _Endpoint, error: _Busy, sent: float) -> None:
        now = self._loop.time()
        if error.reached:
            endpoint.limit.overloaded(sent, now)
        if error.wait is not None:
            left = self._patience - endpoint.missed(now)  # it is asked once more when that is over
            self._rest(endpoint, now + min(error.wait, left if left > 0 else self._patience))
        self._failed(endpoint, str(error), sent, at_once=not error.reached)

    def _failed(self, endpoint: _Endpoint, why: str, sent: float, at_once: bool = False) -> None:
        """Rest an endpoint that fails again and again; end everything where none has answered for too long."""
        now = self._loop.time()
        if sent < endpoint.changed:
            return
        endpoint.failures += 1
        endpoint.failing_since = now if endpoint.failing_since is None else endpoint.failing_since
        if at_once or endpoint.failures >= STREAK:
            endpoint.rests, endpoint.failures, endpoint.changed = endpoint.rests + 1, 0, now
            endpoint.limit.probe()
            self._rest(endpoint, now + backoff(endpoint.rests, LONGEST_PAUSE))
            if endpoint.rests == 1:
                _log.warning("%s: %s; trying for another %g s", endpoint.url, why, self._patience)
        if all(each.missed(now) >= self._patience for each in self._endpoints):
            raise UserError(
                f"{endpoint.url}: {why}; no endpoint has answered for {self._patience:g} s. "
                "Everything answered is kept: the same command goes on from there"
            )

    def _rest(self, endpoint: _Endpoint, until: float) -> None:
        endpoint.rests_until = max(endpoint.rests_until, until)
        self._loop.call_at(until, self._hand_out)

    async def _room(self, first: bool) -> _Endpoint:
        """An endpoint that has room for one more, in which the room is taken; who was there before goes first."""
        if not (first and self._waiting) and (endpoint := self._freest()):
            return self._take(endpoint)
        place: asyncio.Future[_Endpoint] = self._loop.create_future()
        if first:
            self._waiting.append(place)
        else:
            self._waiting.appendleft(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                place.result().flying -= 1
            raise

    def _hand_out(self) -> None:
        while self._waiting and (endpoint := self._freest()):
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(self._take(endpoint))

    def _freest(self) -> _Endpoint | None:
        now = self._loop.time()
        best, least = None, 1.0
        for endpoint in self._endpoints:
            load = endpoint.flying / endpoint.limit.size
            if load < least and endpoint.rests_until <= now:
                best, least = endpoint, load
        return best

    def _take(self, endpoint: _Endpoint) -> _Endpoint:
        endpoint.flying += 1
        endpoint.limit.started(self._loop.time(), endpoint.flying)
        return endpoint


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body of a reply as it comes; `Faulty` for one above `REPLY_LIMIT_BYTES`, whose rest is not read."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > REPLY_LIMIT_BYTES:
            raise _too_long()
    return bytes(body)


def unpacked(body: bytes, encoding: str) -> bytes:
    """A body without its Content-Encoding. `Faulty` where that is none of ours, or above `REPLY_LIMIT_BYTES`."""
    if encoding.strip().lower() in ("", "identity"):
        return body
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)  # of gzip and of deflate
    try:
        body = unpacking.decompress(body, REPLY_LIMIT_BYTES + 1)
    except zlib.error:
        raise Faulty(f"an answer that cannot be unpacked: its encoding is {words(encoding)!r}") from None
    if len(body) > REPLY_LIMIT_BYTES:
        raise _too_long()
    return body


def _too_long() -> Faulty:
    return Faulty(f"an answer of more than {REPLY_LIMIT_BYTES:,} bytes")
