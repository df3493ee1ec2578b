"""Requests to a cluster: as many at once as the cluster bears, each repeated until it is answered.

One thread controls; the others only send and receive bytes. If a node cannot be reached, it rests and is then tried
with a single request, while other nodes do its work. If the cluster turns away a request or items of it (status 429),
the number of requests at once is halved and the part is sent again after a pause. `indexing.io.retry` holds the
statuses and pauses.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from indexing.errors import GaveUp, UserError
from indexing.io.limit import Limit
from indexing.io.retry import AWAY, PATIENCE_S, asked_pause, is_overload, pause_before, tells_overload
from indexing.opensearch.cluster import Node, Reply, Request, as_expected, refuse_strangers

FIRST_REQUESTS = 2
"""Requests at once at the beginning."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Read(Generic[T, R]):
    """The content of a reply: a `result`, None if nothing is done, and the parts that are `left` to send again.

    `why` is the reason. If the parts are left only because one request could not hold them, `turned_away` is false.
    """

    result: R | None
    left: Sequence[T] = ()
    why: str = ""
    turned_away: bool = True


@dataclass(frozen=True, slots=True)
class Work(Generic[T, R]):
    """How a part becomes a request, and how a reply to it is read; `read` may raise."""

    request_of: Callable[[T], Request]
    read: Callable[[T, Reply], Read[T, R]]


@dataclass(slots=True)
class _Job(Generic[T]):
    part: T
    tries: int = 0
    sent: float = 0.0


@dataclass(slots=True)
class _Line:
    """A node with its requests under way and its rests."""

    node: Node
    flying: int = 0
    failures: int = 0
    changed: float = -float("inf")
    rests_until: float = -float("inf")

    def failed(self, sent: float, at: float) -> None:
        """Let the node rest, once for all requests that were sent before its failure was known."""
        if sent >= self.changed:
            self.failures += 1
            self.changed = at
            self.rests_until = at + pause_before(self.failures)


_Answer = Reply | BaseException


@dataclass(slots=True)
class _Senders:
    """Threads that send requests; nobody waits for their end."""

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
    work: Work[T, R],
    at_once: int,
    patience: float = PATIENCE_S,
) -> Iterator[R]:
    """Send the request of each part and yield the results of `work.read`, in the order in which replies arrive.

    At most `at_once` parts are drawn and not yet done. Parts that `read` leaves are sent again. `read` receives every
    whole reply, except those of a busy cluster and those that ask for other credentials. If nothing succeeds for
    `patience` seconds, `GaveUp` is raised with the last reason.
    """
    limit, source, drawn = Limit(at_once, FIRST_REQUESTS, least=1), iter(parts), False
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
                senders.send(job, line, work.request_of(job.part), flying)  # type: ignore[arg-type]
            if drawn and not flying and not waiting:
                return
            try:
                due = _next_chance(lines, waiting, now) if flying < limit.size else None
                answered, line, answer = senders.answers.get(timeout=due)
            except Empty:
                continue
            job, now = answered, time.monotonic()  # type: ignore[assignment]
            flying, line.flying = flying - 1, line.flying - 1
            found = _judge((job, line, answer), work, limit, now)
            if found.succeeded:
                failing_since = None
            else:
                failing_since = now if failing_since is None else failing_since
                if now - failing_since >= patience:
                    raise GaveUp(f"{found.why}; nothing has succeeded for {patience:g} s: what was done is kept")
            for part in found.again:
                tries = 1 if found.succeeded else job.tries + 1
                pause = pause_before(tries, found.pause)
                heappush(waiting, (now + pause, next(number), _Job(part, tries)))
            del job, answer, answered
            if found.result is not None:
                yield found.result
    finally:
        senders.end()


@dataclass(frozen=True, slots=True)
class _Judged(Generic[T, R]):
    """The parts `again` are sent after `pause` seconds; None stands for the pause of the retry policy."""

    result: R | None
    again: Sequence[T]
    succeeded: bool
    why: str
    pause: float | None = 0.0


def _judge(answered: tuple[_Job[T], _Line, _Answer], work: Work[T, R], limit: Limit, now: float) -> _Judged[T, R]:
    """The consequences of an answer for its part; changes its node's rests and the limit."""
    job, line, answer = answered
    if isinstance(answer, UserError) and answer.retryable:
        line.failed(job.sent, now)
        if tells_overload(answer):
            limit.overloaded(job.sent, now)
        return _Judged(None, [job.part], succeeded=False, why=f"{line.node.url}: {answer}")
    if isinstance(answer, BaseException):
        raise answer
    if is_overload(answer.status):
        limit.overloaded(job.sent, now)
        if answer.status in AWAY:
            line.failed(job.sent, now)
        if pause := asked_pause(answer.headers):
            line.rests_until = max(line.rests_until, now + pause)
        return _Judged(None, [job.part], succeeded=False, why=f"{line.node.url}: {answer.reason}", pause=pause)
    line.failures = 0
    refuse_strangers(answer)
    with as_expected(answer.url):
        found = work.read(job.part, answer)
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
    """The cluster's reply to one request, which may be sent several times."""

    def read(_: Request, reply: Reply) -> Read[Request, Reply]:
        return Read(reply)

    [reply] = exchange(nodes, [request], Work(lambda asked: asked, read), 1, patience)
    return reply


def _free(lines: Sequence[_Line], now: float) -> _Line | None:
    """The node for the next request; None while all nodes rest or are on trial."""
    able = [line for line in lines if line.rests_until <= now and not (line.failures and line.flying)]
    return min(able, key=lambda line: (line.flying, line.failures), default=None)


def _next_chance(lines: Sequence[_Line], waiting: Sequence[tuple[float, int, object]], now: float) -> float | None:
    """Seconds until another request can be sent; None if only an answer can allow that."""
    times = [line.rests_until for line in lines if line.rests_until > now]
    times += [waiting[0][0]] if waiting and waiting[0][0] > now else []
    return max(0.0, min(times) - now) + 1e-3 if times else None
