"""The retry policy of all clients: which HTTP statuses are tried again, how often, and after which pause.

A client also learns from an endpoint's speed how many requests to send to it at once (`Limit`).
"""

import math
import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from keystone.indexing.errors import Refused, Unreached, UserError

MOST_TRIES = 8
"""The number of times that a client sends one request before its failure is final."""
FIRST_PAUSE_S = 0.5
"""The bound of the first pause; each further try doubles it."""
LONGEST_PAUSE_S = 10.0
"""The bound of every pause that a client chooses itself."""
LONGEST_REST_S = 60.0
"""The longest pause that a client grants to a server that asks for one."""
LONGEST_RETRY_AFTER_S = 86_400.0
"""The longest pause that `parse_retry_after` reads from a header."""
PATIENCE_S = 600.0
"""If all requests to a cluster fail for this time, that is an error."""

BUSY_STATUSES = frozenset({408, 425, 429})
"""The server turns the request away for now."""
AWAY_STATUSES = frozenset({502, 503, 504, 529})
"""The server cannot work now; another server may be able to."""
REFUSED_CONTENT_STATUSES = frozenset({400, 413, 422})
"""The server declines the content of the request."""
_DECLINED = re.compile(
    r"too (?:large|long)|context (?:length|size|window)|max(?:imum)?[ _](?:\w{1,20}[ _])?(?:length|tokens)"
    r"|unsupported value: (?:NaN|[+-]?Inf)",
    re.IGNORECASE,
)
"""Words by which a server declines a text for its length, or because its numbers overflow at this text."""


def is_overload(status: int) -> bool:
    """Whether the status blames the server's load or state, not the request."""
    return status in BUSY_STATUSES or status in AWAY_STATUSES


def is_retryable(status: int) -> bool:
    """Whether the same request may succeed later."""
    return is_overload(status) or status >= 500


def refuses_content(status: int, reason: str) -> bool:
    """Whether a server declines the content of a request. Some do so by 500, for one of the reasons of `_DECLINED`."""
    return status in REFUSED_CONTENT_STATUSES or (status == 500 and bool(_DECLINED.search(reason)))


def tells_overload(error: UserError) -> bool:
    """Whether an error says that the server has too many requests at once."""
    return error.late if isinstance(error, Unreached) else isinstance(error, Refused) and is_overload(error.status)


def is_last(tries: int) -> bool:
    """Whether no further try follows after `tries` of one request."""
    return tries >= MOST_TRIES


def choose_pause(tries: int, asked_s: float | None = None) -> float:
    """Seconds to wait after `tries` failures in a row: `asked_s` if the server asked for a pause, else random."""
    return draw_pause(tries, LONGEST_PAUSE_S) if asked_s is None else asked_s


def draw_pause(tries: int, longest_s: float) -> float:
    """Random seconds below a bound that doubles with each of the `tries`, at most `longest_s`.

    This is "full jitter" (M. Brooker, Exponential Backoff and Jitter, 2015).
    """
    return random.uniform(0, min(longest_s, FIRST_PAUSE_S * 2.0 ** min(tries - 1, 64)))


def read_asked_pause(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks for by Retry-After, at most `LONGEST_REST_S`; None if it asks for none."""
    asked = parse_retry_after(headers.get("Retry-After"))
    return asked and min(asked, LONGEST_REST_S)


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds of a Retry-After header, number or date (RFC 9110, 10.2.3), at most `LONGEST_RETRY_AFTER_S`.

    None if the header asks for no pause.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
            seconds = (date.replace(tzinfo=date.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
        except (ValueError, OverflowError, TypeError, IndexError):  # the year, hour or zone does not exist
            return None
    return min(seconds, LONGEST_RETRY_AFTER_S) if 0 < seconds < math.inf else None


FIRST_REQUESTS = 64
"""Requests at once at the beginning: a server with one GPU works on at least this number."""
LEAST_REQUESTS = 4
"""Requests at once after halving: with fewer, single faults would starve an endpoint that can do more."""
LEAST_GAIN = 1.05
"""The limit stays doubled only if the endpoint's rate of answers grows by at least this factor."""
HELD_ROUNDS = 4
"""Rounds for which the limit stays before it is doubled again."""


class Limit:
    """The number of requests that one endpoint may have at once, up to `most`.

    A round ends after as many answers as the limit is large. While a doubled limit brings answers faster, the limit
    doubles each round. Then the limit stays at about twice the endpoint's capacity, so that the endpoint is busy while
    its answers are read. Some rounds later the limit doubles again on trial. If not even the first doubling pays, the
    limit is halved again. A round with too few requests to fill the limit changes nothing.

    All times are in seconds of one monotonic clock, which the caller reads.
    """

    def __init__(self, most: int, first: int = FIRST_REQUESTS, least: int = LEAST_REQUESTS) -> None:
        self.most, self._least = most, least
        self.size = min(first, most)
        self._rate = 0.0
        self._grown = self._full = self._paid = False
        self._held = self._answers = 0
        self._since, self._changed = 0.0, -float("inf")

    def started(self, at: float, flying: int) -> None:
        """Note that a request was sent and is one of `flying`."""
        if flying == 1:  # time without requests is not part of a round
            self._begin_round(at)
        self._full |= flying >= self.size

    def answered(self, at: float) -> None:
        """Note that the endpoint answered a request, with any status."""
        self._answers += 1
        if self._answers < self.size:
            return
        rate, full = self._answers / max(at - self._since, 1e-9), self._full
        self._begin_round(at)
        if not full:
            return
        if self._grown and rate < LEAST_GAIN * self._rate:
            self.size = self.size if self._paid else self.size // 2
            self._held, self._grown, self._paid = HELD_ROUNDS, False, False
        elif self._held:
            self._held -= 1
            self._grown = False
        else:
            self._paid |= self._grown
            self._grown = self.size < self.most
            self.size = min(self.most, 2 * self.size)
        self._rate = rate

    def overloaded(self, sent: float, at: float) -> None:
        """Halve the limit because a request failed `at` a time, unless it was `sent` before the last halving."""
        if sent < self._changed:
            return
        self.size = min(self.size, max(self._least, self.size // 2))
        self._held, self._grown, self._paid, self._changed = HELD_ROUNDS, False, False, at
        self._begin_round(at)

    def probe(self) -> None:
        """Allow one request at a time until the next answer."""
        self.size = 1
        self._held, self._grown, self._paid, self._rate = 0, False, False, 0.0
        self._begin_round(0.0)

    def _begin_round(self, at: float) -> None:
        self._since, self._answers, self._full = at, 0, False
