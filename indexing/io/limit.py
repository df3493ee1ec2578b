"""The number of requests that a client sends to an endpoint at once, learnt from the endpoint's speed.

All times are in seconds of one monotonic clock, which the caller reads.
"""

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
        if flying == 1:  # time without requests is no part of a round
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
        """Halve the limit, because the endpoint turned a request away or was late.

        Requests that were sent before the last halving change nothing. `sent` and `at` are the times of the request
        and of its failure.
        """
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
