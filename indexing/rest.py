"""A server of Pyserini's or Anserini's REST interface: queries and documents by HTTP, as many at once as it bears.

Both forms of the interface are spoken: that of TREC RAG 2026 (`GET /v1/INDEX/search`), which Anserini's server has too,
and that of Pyserini before it (`POST /v1/indexes/INDEX/search`). What is turned away (429), fails (5xx), breaks off or
takes too long is asked again after a pause, which the server may name. `PYSERINI_API_KEY` is sent as a bearer token.
"""

import http.client
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Event, local
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import orjson

from indexing.access import is_guarded, secret, without_key
from indexing.errors import UserError
from indexing.limits import Limit, backoff, retry_after
from indexing.rest_replies import Candidate, candidates_of, payload_of, said

PREFIX = "rest:"
KEY = "PYSERINI_API_KEY"
AT_ONCE = 8
"""Requests at the same time, at most."""
TRIES = 7
"""How often a request is made before its failure is an error."""
LONGEST_PAUSE = 30.0
"""Seconds before a request is made again, also where the server asks for more."""
SECONDS = 60.0
"""How long a reply may take."""
_AGAIN = (408, 425, 429, 500, 502, 503, 504)

_DEPTH = re.compile(r"hits|depth|limit|most|maximum|top.?k", re.IGNORECASE)
"""How a server says that so many hits are too many."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Form:
    """One form of the interface: where requests go, and how a search is put."""

    search: str
    document: str
    posted: bool

    def asked(self, name: str, query: str, hits: int) -> tuple[str, str, bytes | None]:
        """Method, target and body of a search; documents come as they are stored where that can be asked for."""
        target = self.search.format(quote(name, ""))
        if self.posted:
            return "POST", target, orjson.dumps({"query": query, "hits": hits})
        return "GET", f"{target}?{urlencode({'query': query, 'hits': hits, 'parse': 'false'})}", None

    def fetched(self, name: str, doc_id: str) -> tuple[str, str, bytes | None]:
        """Method, target and body of a request for a document."""
        target = self.document.format(quote(name, ""), quote(doc_id, ""))
        return "GET", target if self.posted else f"{target}?parse=false", None


FORMS = {
    "v1": Form("/v1/{}/search", "/v1/{}/doc/{}", posted=False),
    "v1/indexes": Form("/v1/indexes/{}/search", "/v1/indexes/{}/documents/{}", posted=True),
}
"""The forms by name, the newer one first."""


class Refused(UserError):
    """The server understood and declines: the same request will not do; `status` is that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class TooDeep(UserError):
    """The server gives fewer hits than were asked for."""


def address(corpus: Path) -> tuple[str, str] | None:
    """URL and index name of `rest:http://HOST:PORT/INDEX`; None for a corpus of another kind.

    `UserError` for one that is not whole. A path makes one slash of two, which is undone here.
    """
    name = os.fspath(corpus)
    if not name.startswith(PREFIX):
        return None
    found = re.fullmatch(r"(https?):/+([^/@?#\s]+)((?:/[^/?#\s]+)*)/([^/?#\s]+)/?", name.removeprefix(PREFIX))
    if not found:
        raise UserError(f"{name}: expected rest:http://HOST:PORT/INDEX, without user, password and query")
    scheme, host, path, index = found.groups()
    return f"{scheme}://{host}{path.removesuffix('/v1')}", index


def form_of(url: str, name: str) -> str:
    """Which form of the interface a server speaks for an index. `UserError` where it has no such index."""
    refusals = []
    for form in FORMS:
        try:
            Server(url, name, form).search(["document"], 1)
            return form
        except Refused as refusal:
            refusals.append(str(refusal))
            if refusal.status not in (404, 405):
                raise
    raise UserError("; ".join(refusals))


class Server:
    """An index of a server."""

    def __init__(self, url: str, name: str, form: str) -> None:
        if form not in FORMS:
            raise UserError(f"{url}: found the interface {form!r}, expected one of {', '.join(FORMS)}")
        self.url, self.name, self._form = url, name, FORMS[form]
        self._parts, self._own = urlsplit(url), local()
        key = secret(KEY)
        if key and not is_guarded(url):
            raise UserError(f"{url}: {KEY} is sent by https or within this machine only, expected an https URL")
        self._key = key
        self._headers = {"Accept": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._limit, self._turn, self._flying = Limit(AT_ONCE), Condition(), 0

    def search(self, queries: Sequence[str], hits: int) -> list[list[Candidate]]:
        """The candidates of each query, best first, `hits` at most; all in memory, so for few queries."""
        found = dict(self.searches(enumerate(queries), hits))
        return [found[place] for place in range(len(queries))]

    def searches(self, queries: Iterable[tuple[T, str]], hits: int) -> Iterator[tuple[T, list[Candidate]]]:
        """The candidates of each query, best first, `hits` at most, as they come."""

        def find(asked: tuple[T, str], stopped: Event) -> tuple[T, list[Candidate]]:
            place, query = asked
            try:
                return place, self._ask(self._form.asked(self.name, query, hits), candidates_of, stopped)[:hits]
            except Refused as refusal:
                if refusal.status == 414:
                    raise UserError(f"{refusal}: a query of {len(query)} characters is too long for it") from refusal
                if refusal.status in (400, 413, 422) and _DEPTH.search(str(refusal)):
                    raise TooDeep(f"{refusal}: {hits} hits were asked for: lower retrieval.depth") from refusal
                raise

        return _each(find, queries)

    def documents(self, doc_ids: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """The payload of each document, as they come."""

        def fetch(doc_id: str, stopped: Event) -> tuple[str, Any]:
            return doc_id, self._ask(self._form.fetched(self.name, doc_id), payload_of, stopped)

        return _each(fetch, doc_ids)

    def _ask(self, request: tuple[str, str, bytes | None], read: Callable[[Any], R], stopped: Event) -> R:
        """What `read` makes of the reply; it raises `ValueError` for one that is not what was asked for."""
        why, pause = "", None
        for tries in range(TRIES):
            if tries and stopped.wait(backoff(tries, LONGEST_PAUSE) if pause is None else min(pause, LONGEST_PAUSE)):
                break
            sent = self._take_turn()
            why, pause, busy = "", None, False
            try:
                status, headers, body = self._send(*request)
                if status == 200:
                    return read(orjson.loads(body))
                told = said(without_key(body, self._key) if self._key else body)
                why, busy = f"HTTP {status}: {told}", status in (429, 503)
                pause = retry_after(headers.get("Retry-After"))
                if status not in _AGAIN:
                    raise Refused(f"{self.url}: {self.name}: {why}", status)
            except ValueError as error:
                why = f"a wrong reply: {error}"
            except TimeoutError:
                why, busy = f"no reply in {SECONDS:g} s", True
            except (OSError, http.client.HTTPException) as error:
                why = f"{type(error).__name__}: {error}"
            finally:
                self._end_turn(sent, busy)
        raise UserError(f"{self.url}: {self.name}: asked {TRIES} times: {why}")

    def _send(self, method: str, target: str, body: bytes | None) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One request on this thread's connection, which is closed where anything fails."""
        connection = getattr(self._own, "connection", None) or self._connect()
        kind = {"Content-Type": "application/json"} if body else {}
        try:
            connection.request(method, self._parts.path + target, body, {**self._headers, **kind})
            reply = connection.getresponse()
            content = reply.read()
        except BaseException:
            connection.close()
            raise
        return reply.status, reply.headers, content

    def _connect(self) -> http.client.HTTPConnection:
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        try:
            self._own.connection = kind(self._parts.hostname or "", self._parts.port, timeout=SECONDS)
        except (ValueError, http.client.InvalidURL) as error:
            raise UserError(f"{self.url}: not the URL of a server: {error}") from error
        return self._own.connection  # type: ignore[no-any-return]

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


def _each(work: Callable[[T, Event], R], items: Iterable[T]) -> Iterator[R]:
    """What `work` makes of each item, as it comes; no more than twice `AT_ONCE` are held.

    `work` is also given an event by which it is told that nobody waits for it any more.
    """
    source, stopped = iter(items), Event()
    pool = ThreadPoolExecutor(AT_ONCE)
    pending: set[Future[R]] = set()
    try:
        while True:
            while len(pending) < 2 * AT_ONCE:
                try:
                    pending.add(pool.submit(work, next(source), stopped))
                except StopIteration:
                    break
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            while done:
                yield done.pop().result()
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
