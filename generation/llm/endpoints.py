"""Chat completions over HTTP, or OpenAI's Responses API, from one endpoint or several that serve the same model.

`keystone.generation.llm.endpoint_pool` chooses the endpoint of each request. If a server is overloaded or rests, a
request fails only after `patience_seconds`. If its replies are wrong, it fails after the tries of
`keystone.indexing.io.retry`.

If all requests have failed for `patience_seconds`, a short plain request tells whether the server is at fault or their
prompts. Only a server that does not answer it ends the run.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from keystone.generation.llm.budget import Purse
from keystone.generation.llm.chat import (
    NO_TOOLS,
    PLAIN_REQUEST,
    REPLY_LIMIT_BYTES,
    RESPONSES,
    Dialect,
    PaidReply,
    combine_dialects,
    find_other_dialect,
    find_room,
    find_schema,
    find_window,
    read_bound,
    read_reply,
    write_body,
)
from keystone.generation.llm.client import open_client
from keystone.generation.llm.dialects import from_responses, read_call, to_responses
from keystone.generation.llm.endpoint_pool import Endpoint, EndpointPool
from keystone.generation.llm.model import OpenModel
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.errors import TooLarge, TurnedAway, UnknownForm, UserError, WrongReply
from keystone.indexing.io.api_keys import remove_key
from keystone.indexing.io.error_text import describe_refusal, show_value
from keystone.indexing.io.http import Body
from keystone.indexing.io.json_values import parse_reply
from keystone.indexing.io.retry import (
    choose_pause,
    is_last,
    is_overload,
    is_retryable,
    parse_retry_after,
    refuses_content,
)

MOST_LATE_TRIES = 3
"""Tries of a request that gets no reply in time. After these, the request is at fault, not the endpoint."""
MOST_UNKNOWN_FORMS = 2
"""Tries of a request whose replies have an unknown form. They cost money, and the form will hardly change."""
SHOWN_BYTES = 100
"""The first bytes of an answer that is not JSON, which the message shows."""
CONNECT_TIMEOUT_S = 20.0
"""How long a connection may take to open."""
IDLE_TIMEOUT_S = 4.0
"""How long an idle connection stays open. The limit of many servers is 5 seconds."""

_HOPELESS_STATUSES = (401, 402, 404, 405)
"""Statuses that any other request to the endpoint would get too."""


class _Forbidden(UserError):
    """The endpoint refused a request with status 403: because of the key, or of the prompt."""


_log = logging.getLogger(__name__)


class _TooLate(WrongReply):
    """No reply came within the time of a call."""


def open_backend(
    settings: ModelSettings, folder: Path, retry: bool = False, purse: Purse | None = None
) -> AbstractAsyncContextManager[OpenModel]:
    """Open the model of the endpoints. `purse` pays for its calls."""
    return open_client(settings, folder, lambda: Endpoints(settings, purse), retry)


class Endpoints:
    """The `Backend` of endpoints at base URLs such as http://localhost:8000/v1; made within a running event loop.

    The key goes as bearer token to the endpoints that `keystone.indexing.io.api_keys.choose_key` allows. It is removed
    from all messages, and from all replies unless it is a mere word.
    """

    def __init__(self, settings: ModelSettings, purse: Purse | None = None) -> None:
        self._purse = purse
        if not settings.urls:
            raise UserError("model: no URL of an endpoint, expected one such as http://localhost:8000/v1")
        self._model, self._extra, self._patience = settings.name, settings.extra, settings.patience_seconds
        self._pool = EndpointPool(settings)
        self._loop = asyncio.get_running_loop()
        self._probing = asyncio.Lock()
        self.at_once = settings.concurrency * len(settings.urls)
        self.notes = [endpoint.key.note for endpoint in self._pool.endpoints if endpoint.key.note]
        call_seconds = settings.call_seconds
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_TIMEOUT_S),
            timeout=aiohttp.ClientTimeout(total=call_seconds, sock_connect=min(call_seconds, CONNECT_TIMEOUT_S)),
            headers={"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def answer(self, request: Request) -> PaidReply:
        """Ask until a reply comes, or until none can come: see `keystone.generation.llm.chat.Backend`."""
        self._pool.begin()
        try:
            return await self._answer(request)
        finally:
            self._pool.end()

    async def _answer(self, request: Request) -> PaidReply:
        faults = turned_away = late = unknown = 0
        seconds, pause, busy_since, probes = 0.0, 0.0, None, Usage()
        while True:
            endpoint = await self._pool.take_room(first=not faults and not turned_away)
            sent, answered, why = self._loop.time(), None, ""
            try:
                ask = partial(self._ask, endpoint, request)
                answered = await (self._purse.pay(request, ask) if self._purse else ask())
            except TurnedAway as error:
                why = str(error)
                turned_away, busy_since = turned_away + 1, busy_since or self._loop.time()
                self._pool.note_busy(endpoint, error, sent)
                if self._loop.time() - busy_since >= self._patience:
                    answered = PaidReply(Failure(f"{endpoint.url}: {error}, for {self._patience:g} s"))
                pause = choose_pause(turned_away) if error.reached and error.wait is None else 0.0
            except WrongReply as error:
                why = str(error)
                faults, busy_since = faults + 1, None
                if isinstance(error, _TooLate):
                    late += 1
                    endpoint.limit.overloaded(sent, self._loop.time())
                if endpoint.rests or not isinstance(error, _TooLate):
                    self._pool.note_failure(endpoint, str(error), sent)
                if isinstance(error, UnknownForm):
                    unknown += 1
                    self._note(endpoint, f"gives {error}")
                if is_last(faults) or late == MOST_LATE_TRIES or unknown == MOST_UNKNOWN_FORMS:
                    answered = PaidReply(Failure(f"{endpoint.url}: {error}, {faults} times"))
                pause = choose_pause(faults)
            except _Forbidden as error:
                async with self._probing:
                    probed = Usage() if endpoint.answered_at > sent else await self._probe(endpoint)
                if probed is None:
                    raise
                answered, probes = PaidReply(Failure(str(error))), probed
            else:
                if answered.sent:
                    endpoint.note_success(self._loop.time())
                    endpoint.limit.answered(self._loop.time())
            finally:
                self._pool.give_back(endpoint)
            seconds += self._loop.time() - sent
            if self._pool.is_silent():
                probes += await self._check_silence(endpoint, why)
            if answered is not None:
                cost, retries = answered.usage + probes, faults + turned_away
                tokens = cost.prompt_tokens, cost.cached_tokens, cost.completion_tokens
                calls = int(answered.sent or retries > 0) + probes.calls
                return PaidReply(answered.outcome, Usage(calls, *tokens, seconds, retries))
            if pause:
                await asyncio.sleep(pause)

    async def _check_silence(self, failed: Endpoint, why: str) -> Usage:
        """Find an endpoint that answers a plain request; returns the cost. `UserError` if there is none.

        If one answers, the prompts of the requests that fail are at fault.
        """
        async with self._probing:
            if not self._pool.is_silent():
                return Usage()
            for endpoint in self._pool.endpoints:
                if (cost := await self._probe(endpoint)) is not None:
                    return cost
        raise UserError(
            f"{failed.url}: {why}; no endpoint has answered for {self._patience:g} s. "
            "All replies are kept: run the same command again to continue"
        )

    async def _probe(self, endpoint: Endpoint) -> Usage | None:
        """Send an endpoint a short plain request, which the budget pays; returns its cost, or None if no reply came."""
        ask = partial(self._ask, endpoint, PLAIN_REQUEST)
        try:
            answered = await (self._purse.pay(PLAIN_REQUEST, ask) if self._purse else ask())
        except (TurnedAway, UserError):
            return None
        if answered.sent:
            endpoint.note_success(self._loop.time())
        return answered.usage

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _ask(self, endpoint: Endpoint, request: Request) -> PaidReply:
        """Get the endpoint's reply to the request, in the dialect that the endpoint takes.

        If its window does not hold the prompt and `max_tokens`, the request is sent again with fewer tokens.
        """
        dialect, notes, first = endpoint.dialect, list[str](), request
        while True:
            status, headers, body = await self._post(endpoint, request, dialect)
            if status == 200:
                break
            reason = describe_refusal(status, headers, self._hide_key(endpoint, body))
            if is_overload(status) and b'"insufficient_quota"' not in body:
                raise TurnedAway(reason, parse_retry_after(headers.get("Retry-After")))
            refusal, schema = body.decode(errors="replace"), find_schema(self._make_body(request, dialect))
            other = find_other_dialect(dialect, refusal, schema) if 400 <= status <= 500 else None
            if other and (other[0].path != dialect.path or status == 404):
                dialect = other[0]
                notes.append(other[1].format(purpose=request.purpose))
                continue
            if status == 403:
                raise _Forbidden(f"{endpoint.url}: {self._model}: refused with status {reason}")
            if status in _HOPELESS_STATUSES or is_overload(status) or 300 <= status < 400:
                raise UserError(f"{endpoint.url}: {self._model}: refused with status {reason}")
            if 400 <= status < 500 and (room := find_room(request, refusal, dialect, again=request is not first)):
                request = replace(request, max_tokens=room[0])
                notes.append(room[1])
                continue
            if 400 <= status < 500 and dialect.tools and request.functions and not find_window(refusal):
                dialect = replace(dialect, tools=False)
                notes.append(NO_TOOLS)
                continue
            if other:
                dialect = other[0]
                notes.append(other[1].format(purpose=request.purpose))
                continue
            if is_retryable(status) and endpoint.rests_until > self._loop.time():
                raise TurnedAway(reason, reached=False)
            if status < 300 or (is_retryable(status) and not refuses_content(status, reason)):
                raise WrongReply(reason)
            return PaidReply(Failure(f"{endpoint.url}: refused with status {reason}"))
        try:
            found = parse_reply(body)
        except orjson.JSONDecodeError:
            begins = show_value(body[:SHOWN_BYTES].decode(errors="replace"))
            raise WrongReply(f"an answer that is not JSON: {begins}") from None
        except ValueError as error:
            raise WrongReply(f"an answer that cannot be kept: {error}") from None
        found, called = read_call(from_responses(found) if dialect.path == RESPONSES else found, request)
        answered = read_reply(found, read_bound(self._make_body(request, dialect)))
        whole = isinstance(answered.outcome, Reply) and answered.outcome.finish == "stop"
        if dialect.tools and request.functions and whole and not called:
            dialect = replace(dialect, tools=False)
            notes.append("makes no tool calls: asked for JSON")
        # a reply came in this dialect, so the fields were the reason of the refusals
        endpoint.dialect = combine_dialects(endpoint.dialect, dialect)
        for note in filter(None, [*notes, answered.note]):
            self._note(endpoint, note)
        return answered

    def _note(self, endpoint: Endpoint, note: str) -> None:
        if (note := f"{endpoint.url}: {self._model} {note}") not in self.notes:
            self.notes.append(note)
            _log.warning("%s", note)

    async def _post(
        self, endpoint: Endpoint, request: Request, dialect: Dialect
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Post a request; returns status, headers and body of the reply, without the key unless that is a mere word.

        If the body of an error cannot be read, the reason replaces it.
        """
        body = self._make_body(request, dialect)
        sent = orjson.dumps(to_responses(body) if dialect.path == RESPONSES else body)
        try:
            async with self._session.post(
                endpoint.addresses[dialect.path], data=sent, headers=endpoint.headers, allow_redirects=False
            ) as response:
                try:
                    body_read = Body(response.headers, REPLY_LIMIT_BYTES)
                    async for part in response.content.iter_any():
                        body_read.add(part)
                    content = body_read.whole()
                except (TooLarge, ValueError) as error:
                    if response.status == 200:
                        raise WrongReply(str(error)) from None
                    content = str(error).encode()
        except aiohttp.ClientConnectorCertificateError as error:
            raise UserError(f"{endpoint.url}: its certificate is not trusted: {error.certificate_error}") from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            why = error.strerror if isinstance(error, aiohttp.ClientConnectorError) else "no connection in time"
            raise TurnedAway(f"cannot be reached: {why}", reached=False) from None
        except TimeoutError:
            raise _TooLate("no answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            why = f"the connection broke: {type(error).__name__}"
            if endpoint.rests:  # if a server is down, its proxy may accept connections and break them
                raise TurnedAway(why, reached=False) from None
            raise WrongReply(why) from None
        return response.status, response.headers, self._hide_key(endpoint, content, spare_words=True)

    def _hide_key(self, endpoint: Endpoint, body: bytes, spare_words: bool = False) -> bytes:
        return remove_key(body, endpoint.key.secret, spare_words) if endpoint.key.secret else body

    def _make_body(self, request: Request, dialect: Dialect) -> dict[str, Any]:
        return write_body(self._model, request, self._extra, dialect)
