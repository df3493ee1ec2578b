"""Requests to a cluster: as many at once as it can take, and each one again until the cluster answers it.

One thread controls; others only send and receive bytes. If a node cannot be reached, Keystone lets it rest and gives
its work to the others. It then tries the node with a single request. If the cluster turns a request or a part of it
away (status 429), Keystone halves the number of requests at a time. It sends the request or the part again after a
pause.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson

from keystone.indexing.errors import GaveUp, MissingPackage, UserError
from keystone.indexing.io.retry import (
    AWAY_STATUSES,
    PATIENCE_S,
    Limit,
    choose_pause,
    is_overload,
    read_asked_pause,
    tells_overload,
)
from keystone.indexing.opensearch.cluster import (
    REPLY_TIMEOUT_S,
    Node,
    Place,
    Reply,
    Request,
    as_expected,
    refuse_strangers,
)

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

NODE_REQUESTS = 4
FIRST_REQUESTS = 2

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Read(Generic[T, R]):
    """The content of an answer: the `result`, the parts `left` to send again, and why they are left.

    `result` is None if the cluster did nothing. `turned_away` is False if parts are left because they were too many
    for one request.
    """

    result: R | None
    left: Sequence[T] = ()
    why: str = ""
    turned_away: bool = True


@dataclass(frozen=True, slots=True)
class Dialogue(Generic[T, R]):
    """How the parts of a job become requests, and how Keystone reads the answers."""

    request_of: Callable[[T], Request]
    read: Callable[[T, Reply], "Read[T, R]"]
    """Reads a whole answer to a part. It never sees an answer that says the cluster is busy. It may raise."""
    at_once: int
    patience: float = PATIENCE_S
    """The seconds without any success after which the job gives up."""


@dataclass(slots=True)
class _Job(Generic[T]):
    part: T
    tries: int = 0
    sent: float = 0.0


@dataclass(slots=True)
class _Line:
    """A node with the number of its requests under way, its failures in a row, and its rest."""

    node: Node
    flying: int = 0
    failures: int = 0
    changed: float = -float("inf")
    rests_until: float = -float("inf")

    def failed(self, sent: float, at: float) -> None:
        """Let the node rest, once for all requests that were sent before it was known to fail."""
        if sent >= self.changed:
            self.failures += 1
            self.changed = at
            self.rests_until = at + choose_pause(self.failures)


@dataclass(slots=True)
class _Answered(Generic[T]):
    job: _Job[T]
    line: _Line
    answer: Reply | BaseException


@dataclass(slots=True)
class _Senders:
    """Threads that send requests. Nobody waits for their end."""

    requests: "SimpleQueue[tuple[_Job[object], _Line, Request] | None]" = field(default_factory=SimpleQueue)
    answers: "SimpleQueue[_Answered[object]]" = field(default_factory=SimpleQueue)
    threads: int = 0

    def send(self, job: "_Job[object]", line: _Line, request: Request, flying: int) -> None:
        if self.threads < flying:
            Thread(target=self._work, daemon=True).start()
            self.threads += 1
        self.requests.put((job, line, request))

    def _work(self) -> None:
        while asked := self.requests.get():
            job, line, request = asked
            try:
                self.answers.put(_Answered(job, line, line.node.ask(request)))
            except BaseException as error:
                self.answers.put(_Answered(job, line, error))
            del asked, job, request

    def end(self) -> None:
        for _ in range(self.threads):
            self.requests.put(None)


def send_parts(nodes: Sequence[Node], parts: Iterable[T], dialogue: Dialogue[T, R]) -> Iterator[R]:
    """Send the request of each part until it is answered, and yield the results in the order of arrival.

    The function draws at most `dialogue.at_once` parts ahead of the finished ones. It sends the parts again that
    `dialogue.read` says are left. `GaveUp`, with the last reason, if nothing succeeds for `dialogue.patience`
    seconds; `UserError` if a node asks for other credentials, and any error of `dialogue.read`.
    """
    limit, source, drawn = Limit(dialogue.at_once, FIRST_REQUESTS, least=1), iter(parts), False
    lines = [_Line(node) for node in nodes]
    waiting: list[tuple[float, int, _Job[T]]] = []
    number, flying, failing_since = count(), 0, None
    senders = _Senders()
    try:
        while True:
            now = time.monotonic()
            while flying < limit.size and (line := _free_line(lines, now)):
                if waiting and waiting[0][0] <= now:
                    job = heappop(waiting)[2]
                elif drawn or flying + len(waiting) >= limit.size:
                    break
                else:
                    try:
                        job = _Job(next(source))
                    except StopIteration:
                        drawn = True
                        continue
                    now = time.monotonic()
                flying, line.flying, job.sent = flying + 1, line.flying + 1, now
                limit.started(now, flying)
                senders.send(job, line, dialogue.request_of(job.part), flying)  # type: ignore[arg-type]
                del job
            if drawn and not flying and not waiting:
                return
            try:
                due = _next_chance(lines, waiting, now) if flying < limit.size else None
                answered: _Answered[T] = senders.answers.get(timeout=due)  # type: ignore[assignment]
            except Empty:
                continue
            now = time.monotonic()
            flying, answered.line.flying = flying - 1, answered.line.flying - 1
            found = _judge(answered, dialogue.read, limit, now)
            if found.succeeded:
                failing_since = None
            else:
                failing_since = now if failing_since is None else failing_since
                if now - failing_since >= dialogue.patience:
                    raise GaveUp(
                        f"{found.why}; nothing has succeeded for {dialogue.patience:g} s: what was done is kept"
                    )
            for part in found.again:
                tries = 1 if found.succeeded else answered.job.tries + 1
                pause = choose_pause(tries, found.pause)
                heappush(waiting, (now + pause, next(number), _Job(part, tries)))
            del answered
            if found.result is not None:
                yield found.result
    finally:
        senders.end()


@dataclass(frozen=True, slots=True)
class _Judged(Generic[T, R]):
    """Parts to send `again` after `pause` seconds; if that is None, after pauses that grow with the tries."""

    result: R | None
    again: Sequence[T]
    succeeded: bool
    why: str
    pause: float | None = 0.0


def _judge(answered: "_Answered[T]", read: Callable[[T, Reply], Read[T, R]], limit: Limit, now: float) -> _Judged[T, R]:
    """Decide from an answer which parts to send again and when; tell the node's line and the limit about it."""
    job, line, answer = answered.job, answered.line, answered.answer
    if isinstance(answer, UserError) and answer.retryable:
        line.failed(job.sent, now)
        if tells_overload(answer):
            limit.overloaded(job.sent, now)
        return _Judged(None, [job.part], succeeded=False, why=f"{line.node.url}: {answer}")
    if isinstance(answer, BaseException):
        raise answer
    if is_overload(answer.status):
        limit.overloaded(job.sent, now)
        if answer.status in AWAY_STATUSES:
            line.failed(job.sent, now)
        if pause := read_asked_pause(answer.headers):
            line.rests_until = max(line.rests_until, now + pause)
        return _Judged(None, [job.part], succeeded=False, why=f"{line.node.url}: {answer.reason}", pause=pause)
    line.failures = 0
    refuse_strangers(answer)
    with as_expected(answer.url):
        found = read(job.part, answer)
    turned_away = bool(found.left) and found.turned_away
    if turned_away:
        limit.overloaded(job.sent, now)
    else:
        limit.answered(now)
    return _Judged(
        found.result,
        found.left,
        succeeded=found.result is not None or not turned_away,
        why=f"{line.node.url}: {found.why}",
        pause=None if turned_away else 0.0,
    )


def ask(nodes: Sequence[Node], request: Request, patience: float = PATIENCE_S) -> Reply:
    """Send one request until the cluster answers it. `GaveUp` if nothing succeeds for `patience` seconds."""

    def read(_: Request, reply: Reply) -> Read[Request, Reply]:
        return Read(reply)

    [reply] = send_parts(nodes, [request], Dialogue(lambda asked: asked, read, 1, patience))
    return reply


def search_once(nodes: Sequence[Node], place: Place, body: Mapping[str, Any]) -> Any:
    """Send one search of an index; returns the whole answer of all its shards."""
    whole = {"allow_partial_search_results": "false"}
    return ask(nodes, Request("POST", f"{place.path}/_search", orjson.dumps(body), whole)).checked()


def _free_line(lines: Sequence[_Line], now: float) -> _Line | None:
    """Choose the node for the next request; None while all nodes rest or a request tries them."""
    able = [line for line in lines if line.rests_until <= now and not (line.failures and line.flying)]
    return min(able, key=lambda line: (line.flying, line.failures), default=None)


def _next_chance(lines: Sequence[_Line], waiting: Sequence[tuple[float, int, object]], now: float) -> float | None:
    """Return the seconds until the next request can be sent; None if only an answer can change that."""
    times = [line.rests_until for line in lines if line.rests_until > now]
    times += [waiting[0][0]] if waiting and waiting[0][0] > now else []
    return max(0.0, min(times) - now) + 1e-3 if times else None


def administer(nodes: Sequence[Node], patience: float = PATIENCE_S) -> "OpenSearch":
    """Return opensearch-py's client of a cluster. Its calls return the JSON of an answer.

    opensearch-py knows the path and the parameters of each call. Keystone's own connections send it. They bring
    credentials, limits of replies, and patience with a cluster that is busy or down.

    A call raises `ClusterRefused` for the status of an error that it does not `ignore`, and `GaveUp` if nothing
    succeeds for `patience` seconds. `MissingPackage` if opensearch-py is not installed.
    """
    try:
        import opensearchpy
    except ImportError as error:
        raise MissingPackage(
            "opensearch-py is needed to load an index, and to examine a cluster or find its nodes: "
            "pip install 'keystone-rag[opensearch]'"
        ) from error

    class Connections(opensearchpy.Transport):
        """The transport of the client, in place of opensearch-py's own connections."""

        def __init__(self, *_: Any) -> None:
            """Open nothing: the nodes are connected."""

        def perform_request(
            self,
            method: str,
            url: str,
            params: Mapping[str, Any] | None = None,
            body: Any = None,
            *_: Any,
            **__: Any,
        ) -> Any:
            """Send one request; `params` may hold a status to `ignore`, and a `request_timeout` in seconds."""
            sent = dict(params or {})
            ignored, seconds = sent.pop("ignore", None), sent.pop("request_timeout", REPLY_TIMEOUT_S)
            content = None if body is None else orjson.dumps(body)
            reply = ask(nodes, Request(method, url, content, sent, seconds), patience)
            return reply.value if reply.status == ignored else reply.checked()

    return opensearchpy.OpenSearch(transport_class=Connections)
