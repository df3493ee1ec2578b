"""Requests to a cluster, as many at once as it bears, each sent again until it has been answered.

One thread controls; others only send and receive bytes. A node that cannot be reached is rested and then tried with a
single request, while the others are given its work. Whatever is turned away (status 429, whole requests or items of
them) halves the number of requests at once and is sent again after a pause.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from indexing.errors import UserError
from indexing.io.http import Unreached
from indexing.io.limit import Limit, backoff, retry_after
from indexing.opensearch.cluster import Node, Reply, Request, as_expected, refuse_strangers

PATIENCE = 600.0
"""Seconds for which everything may fail before that is an error."""
LONGEST_PAUSE = 10.0
"""Seconds before a request is sent again, or a node is tried again, that does not ask for more."""
LONGEST_REST = 60.0
"""Seconds for which a node is left alone that asks for it, at most."""
FIRST = 2
"""Requests at once to begin with."""

_BUSY = (408, 425, 429)
_AWAY = (502, 503, 504)
"""The node does not do its work; another one may."""

T = TypeVar("T")
R = TypeVar("R")


class GaveUp(UserError):
    """Nothing has succeeded for too long."""


@dataclass(frozen=True, slots=True)
class Read(Generic[T, R]):
    """What an answer says: `result`, None if nothing is done, and parts that are `left` to be sent again, and why.

    Parts that are left because they were too many for one request are not `turned_away`.
    """

    result: R | None
    left: Sequence[T] = ()
    why: str = ""
    turned_away: bool = True


@dataclass(slots=True)
class _Job(Generic[T]):
    part: T
    tries: int = 0
    sent: float = 0.0


@dataclass(slots=True)
class _Line:
    """A node as the exchange sees it."""

    node: Node
    flying: int = 0
    failures: int = 0
    changed: float = -float("inf")
    rests_until: float = -float("inf")

    def failed(self, sent: float, at: float) -> None:
        """Rest the node, once for all that was sent before it was known to fail."""
        if sent >= self.changed:
            self.failures += 1
            self.changed = at
            self.rests_until = at + backoff(self.failures, LONGEST_PAUSE)


_Answer = Reply | Unreached | BaseException


@dataclass(slots=True)
class _Senders:
    """Threads that send requests; they are not waited for."""

    requests: "SimpleQueue[tuple[_Job[object], _Line, Request] | None]" = field(default_factory=SimpleQueue)
    answers: "SimpleQueue[tuple[_Job[object], _Line, _Answer]]" = field(default_factory=SimpleQueue)
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
                self.answers.put((job, line, line.node.ask(request)))
            except BaseException as error:
                self.answers.put((job, line, error))
            del asked, job, request

    def end(self) -> None:
        for _ in range(self.threads):
            self.requests.put(None)


def exchange(
    nodes: Sequence[Node],
    parts: Iterable[T],
    request_of: Callable[[T], Request],
    read: Callable[[T, Reply], Read[T, R]],
    at_once: int,
    patience: float = PATIENCE,
) -> Iterator[R]:
    """Send the request of each part and yield what `read` makes of the answers, in their order of arrival.

    At most `at_once` parts are drawn and not yet done. What `read` says is left is sent again. `read` is given every
    whole answer but those that say that the cluster is busy or want other credentials; it may raise. `GaveUp` if
    nothing has succeeded for `patience` seconds: with the last of the reasons.
    """
    limit, source, drawn = Limit(at_once, FIRST, least=1), iter(parts), False
    lines = [_Line(node) for node in nodes]
    waiting: list[tuple[float, int, _Job[T]]] = []
    number, flying, failing_since = count(), 0, None
    senders = _Senders()
    try:
        while True:
            now = time.monotonic()
            while flying < limit.size and (line := _free(lines, now)):
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
                senders.send(job, line, request_of(job.part), flying)  # type: ignore[arg-type]
            if drawn and not flying and not waiting:
                return
            try:
                due = _next_chance(lines, waiting, now) if flying < limit.size else None
                answered, line, answer = senders.answers.get(timeout=due)
            except Empty:
                continue
            job, now = answered, time.monotonic()  # type: ignore[assignment]
            flying, line.flying = flying - 1, line.flying - 1
            found = _judged(job, line, answer, read, limit, now)
            if found.succeeded:
                failing_since = None
            else:
                failing_since = now if failing_since is None else failing_since
                if now - failing_since >= patience:
                    raise GaveUp(f"{found.why}; nothing has succeeded for {patience:g} s: what was done is kept")
            for part in found.again:
                tries = 1 if found.succeeded else job.tries + 1
                pause = backoff(tries, LONGEST_PAUSE) if found.pause is None else found.pause
                heappush(waiting, (now + pause, next(number), _Job(part, tries)))
            del job, answer, answered
            if found.result is not None:
                yield found.result
    finally:
        senders.end()


@dataclass(frozen=True, slots=True)
class _Judged(Generic[T, R]):
    """`again` is to be sent after `pause` seconds, None: after those that its tries make it wait."""

    result: R | None
    again: Sequence[T]
    succeeded: bool
    why: str
    pause: float | None = 0.0


def _judged(
    job: _Job[T], line: _Line, answer: _Answer, read: Callable[[T, Reply], Read[T, R]], limit: Limit, now: float
) -> _Judged[T, R]:
    """What follows of an answer, for its part, its node and the limit."""
    if isinstance(answer, Unreached):
        line.failed(job.sent, now)
        if answer.late:
            limit.overloaded(job.sent, now)
        return _Judged(None, [job.part], succeeded=False, why=f"{line.node.url}: {answer}")
    if isinstance(answer, BaseException):
        raise answer
    if answer.status in (*_BUSY, *_AWAY):
        limit.overloaded(job.sent, now)
        if answer.status in _AWAY:
            line.failed(job.sent, now)
        pause = min(retry_after(answer.headers.get("Retry-After")) or 0.0, LONGEST_REST) or None
        if pause:
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


def ask(nodes: Sequence[Node], request: Request, patience: float = PATIENCE) -> Reply:
    """The cluster's answer to one request, which may be sent several times."""

    def read(_: Request, reply: Reply) -> Read[Request, Reply]:
        return Read(reply)

    [reply] = exchange(nodes, [request], lambda asked: asked, read, 1, patience)
    return reply


def _free(lines: Sequence[_Line], now: float) -> _Line | None:
    """The node that is given the next request; none while all rest, or are being tried."""
    able = [line for line in lines if line.rests_until <= now and not (line.failures and line.flying)]
    return min(able, key=lambda line: (line.flying, line.failures), default=None)


def _next_chance(lines: Sequence[_Line], waiting: Sequence[tuple[float, int, object]], now: float) -> float | None:
    """In how many seconds something can be sent that cannot be now; None if only an answer can change that."""
    times = [line.rests_until for line in lines if line.rests_until > now]
    times += [waiting[0][0]] if waiting and waiting[0][0] > now else []
    return max(0.0, min(times) - now) + 1e-3 if times else None
