"""Requests to one server: as many at once as the server can take, each repeated by the policy of
`keystone.indexing.io.retry`.

The server may turn a request away, fail, break off, take too long or send a wrong reply. If it does, the client sends
the request again after a pause. The server may name the pause.
"""

import time
from collections.abc import Callable
from functools import cache
from threading import Condition, Event, Lock
from typing import Any, TypeVar

from keystone.indexing.errors import Refused, UserError, WrongReply, printable
from keystone.indexing.io.api_keys import remove_key
from keystone.indexing.io.error_text import describe_refusal
from keystone.indexing.io.http import HttpRequest, Sender
from keystone.indexing.io.json_values import parse_reply
from keystone.indexing.io.retry import (
    Limit,
    choose_pause,
    is_last,
    is_retryable,
    read_asked_pause,
    refuses_content,
    tells_overload,
)

R = TypeVar("R")


class Pace:
    """The times at which the requests of this process to a server begin: at most `rate` a second, evenly spaced."""

    def __init__(self, rate: float) -> None:
        self._gap_s, self._next, self._lock = 1 / rate, 0.0, Lock()

    def book(self) -> float:
        """Book the next free time of `time.monotonic`, and return the seconds until then."""
        with self._lock:
            now = time.monotonic()
            begins = max(now, self._next)
            self._next = begins + self._gap_s
        return begins - now


@cache
def pace_of(_url: str, rate: float) -> Pace:
    """The pace that all clients of one server share."""
    return Pace(rate)


class Asker:
    """A server at a URL; many threads may call `ask` at once. Errors begin with the URL and `name`.

    `key` is sent as bearer token and removed from every reply. At most `at_once` requests are under way. One reply may
    take `seconds`. At most `rate` requests a second are sent to the URL, retries included; None sets no limit.
    """

    def __init__(
        self, url: str, name: str, key: str | None, at_once: int, seconds: float, rate: float | None = None
    ) -> None:
        self._pace = pace_of(url, rate) if rate else None
        self._where, self._key, self._seconds = f"{url}: {name}", key, seconds
        self._sender = Sender(url, f"Bearer {key}" if key else None, at_once)
        self._limit, self._turn, self._flying = Limit(at_once), Condition(), 0

    def ask(self, request: HttpRequest, read: Callable[[Any], R], stopped: Event | None = None) -> R:
        """The value that `read` makes of the reply's JSON; `read` raises `ValueError` for a wrong reply.

        `Refused` if the server declines the request. `UserError` if all tries fail, or if `stopped` is set between
        two of them.
        """
        stopped, tries = stopped or Event(), 0
        while True:
            if self._pace:
                stopped.wait(self._pace.book())
            sent, failure = self._take_turn(), None
            try:
                return self._ask_once(request, read)
            except UserError as error:
                if not error.retryable:
                    raise
                failure = error
            finally:
                self._end_turn(sent, failure is not None and tells_overload(failure))
            tries += 1
            pause = choose_pause(tries, failure.pause_s if isinstance(failure, Refused) else None)
            if is_last(tries) or stopped.wait(pause):
                raise UserError(f"{self._where}: asked {tries} times: {failure}")

    def _ask_once(self, request: HttpRequest, read: Callable[[Any], R]) -> R:
        reply = self._sender.send(request, self._seconds)
        body = remove_key(reply.body, self._key, spare_words=reply.status == 200) if self._key else reply.body
        if reply.status == 200:
            try:
                return read(parse_reply(body))
            except ValueError as error:
                raise WrongReply(f"a wrong reply: {printable(str(error))}") from error
        text = f"HTTP {describe_refusal(reply.status, reply.headers, body)}"
        retryable = is_retryable(reply.status) and not refuses_content(reply.status, text)
        pause = read_asked_pause(reply.headers) if retryable else None
        raise Refused(text if retryable else f"{self._where}: {text}", reply.status, retryable, pause)

    def _take_turn(self) -> float:
        with self._turn:
            self._turn.wait_for(lambda: self._flying < self._limit.size)
            self._flying += 1
            now = time.monotonic()
            self._limit.started(now, self._flying)
        return now

    def _end_turn(self, sent: float, overloaded: bool) -> None:
        with self._turn:
            self._flying -= 1
            now = time.monotonic()
            if overloaded:
                self._limit.overloaded(sent, now)
            else:
                self._limit.answered(now)
            self._turn.notify_all()
