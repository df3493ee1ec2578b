"""Requests to one server, as many at once as it bears, each made again until it is answered.

If the server turns a request away (429), fails (5xx), breaks off, takes too long or says something else than was asked
for, the request is made again after a pause. The server may name the pause.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Condition, Event
from typing import Any, TypeVar

import orjson

from indexing.errors import UserError, printable
from indexing.io.http import REPLY_LIMIT_BYTES, Sender, Unreached, words_of
from indexing.io.keys import without_key
from indexing.io.limit import Limit, backoff, retry_after

TRIES = 7
"""How often a request is made before its failure is an error."""
LONGEST_PAUSE = 30.0
"""Seconds before a request is made again, also where the server asks for more."""
_AGAIN = (408, 425, 429, 500, 502, 503, 504)

R = TypeVar("R")


class Refused(UserError):
    """The server understood and declines: the same request will not do; `status` is that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a path below the server's URL, and the bytes that its reply can have at most."""

    method: str
    target: str
    body: bytes | None = None
    limit: int = REPLY_LIMIT_BYTES


class Asker:
    """A server at a URL, whose errors begin with its URL and `name`; `ask` may be called by many threads at once.

    `key` is sent as bearer, and taken out of what the server says. `seconds` is how long a reply may take.
    """

    def __init__(self, url: str, name: str, key: str | None, at_once: int, seconds: float) -> None:
        self._where, self._key, self._seconds = f"{url}: {name}", key, seconds
        self._sender = Sender(url, f"Bearer {key}" if key else None, at_once)
        self._limit, self._turn, self._flying = Limit(at_once), Condition(), 0

    def ask(self, asked: Asked, read: Callable[[Any], R], stopped: Event | None = None) -> R:
        """What `read` makes of the JSON of the reply; it raises `ValueError` for one that is not what was asked for.

        `Refused` for what the server declines, `UserError` after `TRIES` failures, or once `stopped` is set.
        """
        why, pause = "", None
        stopped = stopped or Event()
        for tries in range(TRIES):
            if tries and stopped.wait(backoff(tries, LONGEST_PAUSE) if pause is None else min(pause, LONGEST_PAUSE)):
                break
            sent = self._take_turn()
            why, pause, busy = "", None, False
            try:
                reply = self._sender.send(
                    asked.method, asked.target, asked.body, seconds=self._seconds, limit=asked.limit
                )
                body = without_key(reply.body, self._key) if self._key else reply.body
                if reply.status == 200:
                    return read(orjson.loads(body))
                why, busy = _refusal(reply.status, reply.headers, body), reply.status in (429, 503)
                if reply.status not in _AGAIN:
                    raise Refused(f"{self._where}: {why}", reply.status)
                pause = retry_after(reply.headers.get("Retry-After"))
            except ValueError as error:
                why = f"a wrong reply: {printable(str(error))}"
            except Unreached as error:
                why, busy = str(error), error.late
            finally:
                self._end_turn(sent, busy)
        raise UserError(f"{self._where}: asked {TRIES} times: {why}")

    def _take_turn(self) -> float:
        with self._turn:
            self._turn.wait_for(lambda: self._flying < self._limit.size)
            self._flying += 1
            now = time.monotonic()
            self._limit.started(now, self._flying)
        return now

    def _end_turn(self, sent: float, busy: bool) -> None:
        with self._turn:
            self._flying -= 1
            now = time.monotonic()
            if busy:
                self._limit.overloaded(sent, now)
            else:
                self._limit.answered(now)
            self._turn.notify_all()


def _refusal(status: int, headers: Mapping[str, str], body: bytes) -> str:
    if 300 <= status < 400:
        return f"HTTP {status}: leads to {printable(headers.get('Location', 'nowhere'))}, expected the URL it ends at"
    return f"HTTP {status}: {words_of(body)}"
