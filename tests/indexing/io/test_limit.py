"""The number of requests at once, with simulated servers; pauses; and costs."""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.llm.usage import Prices, compute_cost, report_usage
from keystone.generation.types import Usage
from keystone.indexing.io.retry import LEAST_REQUESTS, LONGEST_RETRY_AFTER_S, Limit, draw_pause, parse_retry_after


def simulate(limit: Limit, calls: int, seconds: Callable[[int], float], room: int = 10**9) -> tuple[float, list[int]]:
    """Ask a server that takes `seconds` of the number in flight and turns away what exceeds its room.

    Returned are the time it took and the limit after each answer.
    """
    now, left, flying, sizes = 0.0, calls, 0, []
    events: list[tuple[float, int, float, bool]] = []
    while left or flying:
        while left and flying < limit.size:
            flying, left = flying + 1, left - 1
            limit.started(now, flying)
            good = flying <= room
            heapq.heappush(events, (now + (seconds(flying) if good else 0.001), left, now, good))
        now, _, sent, good = heapq.heappop(events)
        flying -= 1
        if good:
            limit.answered(now)
        else:
            left += 1
            limit.overloaded(sent, now)
        sizes.append(limit.size)
    return now, sizes


@pytest.mark.parametrize("capacity", [20, 50, 128, 200])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_a_server_gets_its_capacity_of_requests_and_a_little_more(capacity: int, spread: float) -> None:
    random = Random(capacity)
    limit = Limit(1_000)

    def seconds(flying: int) -> float:
        return 0.05 * max(1.0, flying / capacity) * random.uniform(1 - spread, 1 + spread)

    took, sizes = simulate(limit, 20_000, seconds)
    assert took < 1.05 * 20_000 * 0.05 / capacity + 0.5
    assert spread or capacity <= sorted(sizes)[len(sizes) // 2] <= 4 * capacity


def test_a_server_that_turns_requests_away_gets_fewer() -> None:
    took, sizes = simulate(Limit(256), 5_000, lambda _: 0.05, room=40)
    late = sizes[len(sizes) // 2 :]
    assert 15 < sum(late) / len(late) < 60
    assert took < 2.5 * 5_000 * 0.05 / 40


@given(st.integers(1, 300), st.lists(st.tuples(st.sampled_from("saop"), st.floats(0, 10)), max_size=300))
def test_the_limit_stays_within_its_bounds(most: int, events: list[tuple[str, float]]) -> None:
    limit, now = Limit(most), 0.0
    for kind, passed in events:
        now += passed
        match kind:
            case "s":
                limit.started(now, limit.size)
            case "a":
                limit.answered(now)
            case "o":
                limit.overloaded(now - passed / 2, now)
            case "p":
                limit.probe()
        assert 1 <= limit.size <= most


def test_requests_sent_together_and_turned_away_halve_the_limit_once() -> None:
    limit = Limit(64)
    limit.size = 64
    for _ in range(20):
        limit.overloaded(sent=0.0, at=1.0)
    assert limit.size == 32
    for second in range(2, 20):
        limit.overloaded(sent=second, at=second + 0.5)
    assert limit.size == LEAST_REQUESTS


def test_a_single_request_probes_until_it_is_answered() -> None:
    limit = Limit(64)
    limit.probe()
    assert limit.size == 1
    limit.overloaded(1.0, 2.0)
    assert limit.size == 1
    for second in range(3, 12):
        size = limit.size
        for flying in range(1, size + 1):
            limit.started(second, flying)
        for _ in range(size):
            limit.answered(second + 0.5)
    assert limit.size > 1


@given(st.integers(0, 2_000), st.floats(0.01, 100))
def test_pauses_stay_below_their_bound(tries: int, longest: float) -> None:
    assert 0 <= draw_pause(tries, longest) <= longest


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", None), ("1.5", 1.5), ("-3", None), ("Sat, 21 Nov 2026 10:00:30 GMT", 30),
        ("Sat, 21 Nov 2026 09:00:00 GMT", None),
        ("Sat, 21 Nov 2026 10:00:30 -0000", 30), (None, None), ("", None), ("soon", None), ("nan", None), ("inf", None),
        ("1e300", LONGEST_RETRY_AFTER_S), ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_RETRY_AFTER_S),
        ("Sat, 21 Nov 2026 10:00:30 +9999", None), ("Sat, 21 Nov 2026 10:00:30 +99999999999999", None),
        ("Sat, 21 Nov 99999999999 10:00:30 GMT", None), ("Fri, 31 Dec 9999 23:59:59 -2359", LONGEST_RETRY_AFTER_S),
        ("Mon, 1 Jan 0001 00:00:00 +2359", None), ("Sat, 21 Nov 2026 99:99:99 GMT", None),
    ],
)  # fmt: skip
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, datetime(2026, 11, 21, 10, tzinfo=UTC)) == seconds


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ [+-]?[\dA-Z]+", fullmatch=True))
def test_any_retry_after_header_is_a_bounded_pause_or_none(value: str) -> None:
    seconds = parse_retry_after(value)
    assert seconds is None or 0 < seconds <= LONGEST_RETRY_AFTER_S


def test_spending_is_reported_by_purpose_with_its_cost() -> None:
    spent = {"umbrela": Usage(2, 1_000_000, 400_000, 10_000, 2.0, 1), "answer": Usage(cache_hits=3)}
    prices = Prices(prompt=2.0, completion=10.0, cached=0.5)
    assert compute_cost(spent["umbrela"], prices) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1)
    rows = report_usage(spent, prices)
    assert list(rows) == ["answer", "umbrela", "total"]
    assert rows["total"] == rows["umbrela"] | {"cache_hits": 3}
    assert "cost" not in report_usage(spent)["total"]
    assert sum(spent.values(), Usage()) == Usage(2, 1_000_000, 400_000, 10_000, 2.0, 1, 3)
