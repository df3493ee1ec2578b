"""How many requests an endpoint is given at once, learnt from how fast it answers, and how long to stay away from it.

Times are seconds of one monotonic clock, given by the caller.
"""

import math
import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST = 64
"""Requests at once to begin with, unless told: what a server of one GPU works on at least."""
LEAST = 4
"""Of requests at once after halving, unless told: fewer would let single faults starve an endpoint that could more."""
GAIN = 1.05
"""How much faster an endpoint must answer for a doubled limit to be worth keeping."""
HOLD = 4
"""Rounds for which the limit rests before it is doubled again."""
BACKOFF = 0.25
LONGEST_ASKED = 86_400.0
"""Seconds that a server can ask for at most."""


class Limit:
    """The number of requests that may be with one endpoint at once, up to `most`.

    A round is as many answers as the limit is large. While twice as many at once are answered faster, the limit
    doubles each round. Then it stays, at about twice what the endpoint works on, so that it goes on while its answers
    are read, and tries again some rounds later. Where not even the first doubling pays, it is taken back. A round in
    which there was not enough to ask teaches nothing.
    """

    def __init__(self, most: int, first: int = FIRST, least: int = LEAST) -> None:
        self.most, self._least = most, least
        self.size = min(first, most)
        self._rate = 0.0
        self._grown = self._full = self._paid = False
        self._held = self._answers = 0
        self._since, self._changed = 0.0, -float("inf")

    def started(self, at: float, flying: int) -> None:
        """A request was sent and is one of `flying`."""
        if flying == 1:  # time without requests is no part of a round
            self._begin_round(at)
        self._full |= flying >= self.size

    def answered(self, at: float) -> None:
        """A request was answered, by whatever the endpoint had to say to it."""
        self._answers += 1
        if self._answers < self.size:
            return
        rate, full = self._answers / max(at - self._since, 1e-9), self._full
        self._begin_round(at)
        if not full:
            return
        if self._grown and rate < GAIN * self._rate:
            self.size = self.size if self._paid else self.size // 2
            self._held, self._grown, self._paid = HOLD, False, False
        elif self._held:
            self._held -= 1
            self._grown = False
        else:
            self._paid |= self._grown
            self._grown = self.size < self.most
            self.size = min(self.most, 2 * self.size)
        self._rate = rate

    def overloaded(self, sent: float, at: float) -> None:
        """A request was turned away or not answered in time: half as many, once for all that were sent together."""
        if sent < self._changed:
            return
        self.size = min(self.size, max(self._least, self.size // 2))
        self._held, self._grown, self._paid, self._changed = HOLD, False, False, at
        self._begin_round(at)

    def probe(self) -> None:
        """One request at a time until the next answer."""
        self.size = 1
        self._held, self._grown, self._paid, self._rate = 0, False, False, 0.0
        self._begin_round(0.0)

    def _begin_round(self, at: float) -> None:
        self._since, self._answers, self._full = at, 0, False


def backoff(tries: int, longest: float) -> float:
    """Seconds to wait before a further try, after so many: anything below a bound that doubles (full jitter)."""
    return random.uniform(0, min(longest, BACKOFF * 2.0**tries))


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """The seconds that a Retry-After header asks for, which holds seconds or a date; None without a readable one.

    They are `LONGEST_ASKED` at most.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
            seconds = (date.replace(tzinfo=date.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
        except (ValueError, OverflowError, TypeError, IndexError):  # of years, hours and zones that do not exist
            return None
    return min(max(0.0, seconds), LONGEST_ASKED) if math.isfinite(seconds) else None
