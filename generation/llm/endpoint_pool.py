"""The endpoints that serve one model: which of them takes the next request, and which of them rests.

A request goes to the least loaded endpoint. If an endpoint cannot be reached, or fails again and again, it rests, and
a single request then tries it. Its requests go to the others, or wait.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from yarl import URL

from keystone.generation.llm.chat import CHAT, RESPONSES, Dialect
from keystone.generation.llm.settings import ModelSettings
from keystone.indexing.errors import TurnedAway
from keystone.indexing.io.api_keys import OPENAI_KEY, choose_key
from keystone.indexing.io.http import check_url
from keystone.indexing.io.retry import Limit, choose_pause

MOST_FAILURES = 8
"""Failures in a row after which an endpoint rests."""

_log = logging.getLogger(__name__)


class Endpoint:
    """One endpoint: its addresses and key, its load, and its failures in a row."""

    def __init__(self, url: str, settings: ModelSettings) -> None:
        check_url(url)
        self.url = url
        base = url.rstrip("/").removesuffix(RESPONSES)
        self.addresses = {path: URL(base + path) for path in (CHAT, RESPONSES)}
        self.limit = Limit(settings.concurrency)
        self.dialect = Dialect(tools=True, path=CHAT if base == url.rstrip("/") else RESPONSES)
        self.key = choose_key(url, OPENAI_KEY, settings.named_key, settings.key_file, required=False)
        self.headers = {"Authorization": f"Bearer {self.key.secret}"} if self.key.secret else {}
        self.flying = self.failures = self.rests = 0
        self.rests_until = self.changed = self.answered_at = -float("inf")
        self.failing_since: float | None = None

    def note_success(self, at: float) -> None:
        """Note that the endpoint answered at the time `at`."""
        self.answered_at = at
        self.failures = self.rests = 0
        self.failing_since = None

    def get_failing_seconds(self, at: float) -> float:
        """Get the seconds for which requests to the endpoint have failed, until the time `at`."""
        return 0.0 if self.failing_since is None else at - self.failing_since


class EndpointPool:
    """The endpoints of `settings`; made within an event loop. A request is sent between `take_room` and `give_back`."""

    def __init__(self, settings: ModelSettings) -> None:
        self.endpoints: Sequence[Endpoint] = [Endpoint(url, settings) for url in settings.urls]
        self._patience = settings.patience_seconds
        self._waiting: deque[asyncio.Future[Endpoint]] = deque()
        self._loop = asyncio.get_running_loop()
        self._open, self._idle_since = 0, self._loop.time()

    def begin(self) -> None:
        """Count a request that begins. Time without requests does not count as failure."""
        if not self._open:
            for endpoint in self.endpoints:
                if endpoint.failing_since is not None:
                    endpoint.failing_since += self._loop.time() - self._idle_since
        self._open += 1

    def end(self) -> None:
        """Count a request that ends."""
        self._open -= 1
        self._idle_since = self._loop.time()

    async def take_room(self, first: bool) -> Endpoint:
        """Take room for one request at an endpoint. Requests that were sent before go first."""
        if not (first and self._waiting) and (endpoint := self._find_freest()):
            return self._take(endpoint)
        place: asyncio.Future[Endpoint] = self._loop.create_future()
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

    def give_back(self, endpoint: Endpoint) -> None:
        """Give the room of a request at an endpoint to the next that waits."""
        endpoint.flying -= 1
        self._hand_out()

    def note_busy(self, endpoint: Endpoint, error: TurnedAway, sent: float) -> None:
        """Note that an endpoint turned away a request sent at the time `sent`. It rests as long as it says.

        A failure is counted as well.
        """
        now = self._loop.time()
        if error.reached:
            endpoint.limit.overloaded(sent, now)
        if error.wait is not None:
            left = self._patience - endpoint.get_failing_seconds(now)  # after this time it gets one more request
            self._rest(endpoint, now + min(error.wait, left if left > 0 else self._patience))
        self.note_failure(endpoint, str(error), sent, at_once=not error.reached)

    def note_failure(self, endpoint: Endpoint, why: str, sent: float, at_once: bool = False) -> None:
        """Count a failure. After too many in a row, the endpoint rests."""
        now = self._loop.time()
        if sent < endpoint.changed:
            return
        endpoint.failures += 1
        endpoint.failing_since = now if endpoint.failing_since is None else endpoint.failing_since
        if at_once or endpoint.failures >= MOST_FAILURES:
            endpoint.rests, endpoint.failures, endpoint.changed = endpoint.rests + 1, 0, now
            endpoint.limit.probe()
            self._rest(endpoint, now + choose_pause(endpoint.rests))
            if endpoint.rests == 1:
                _log.warning("%s: %s; trying for another %g s", endpoint.url, why, self._patience)

    def is_silent(self) -> bool:
        """Return whether all requests to all endpoints have failed for `patience_seconds`."""
        now = self._loop.time()
        return all(
            one.failing_since is not None and one.get_failing_seconds(now) >= self._patience for one in self.endpoints
        )

    def _rest(self, endpoint: Endpoint, until: float) -> None:
        endpoint.rests_until = max(endpoint.rests_until, until)
        self._loop.call_at(until, self._hand_out)

    def _hand_out(self) -> None:
        while self._waiting and (endpoint := self._find_freest()):
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(self._take(endpoint))

    def _find_freest(self) -> Endpoint | None:
        now = self._loop.time()
        best, least = None, 1.0
        for endpoint in self.endpoints:
            load = endpoint.flying / endpoint.limit.size
            if load < least and endpoint.rests_until <= now:
                best, least = endpoint, load
        return best

    def _take(self, endpoint: Endpoint) -> Endpoint:
        endpoint.flying += 1
        endpoint.limit.started(self._loop.time(), endpoint.flying)
        return endpoint
