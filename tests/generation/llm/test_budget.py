"""Budgets: no order and no cost of calls exceeds one, a killed run included, and a run that spends it is whole."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.generation.llm.budget import Purse
from keystone.generation.llm.chat import PaidReply
from keystone.generation.llm.usage import Budget, Prices, compute_cost, find_most_usage
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.errors import TurnedAway, UserError, WrongReply

PRICES = Prices(prompt=500_000, cached=100_000, completion=1_000_000)
ONE = Request("step", (("user", "Why?"),), 20)
MOST = find_most_usage(ONE)
MOST_TOKENS = MOST.prompt_tokens + MOST.completion_tokens


@dataclass(frozen=True)
class Call:
    """A scripted call: the length of its prompt, the shares of its bounds that it uses, its turns, and its end."""

    words: int
    prompt: float
    cached: float
    completion: float
    turns: int
    end: str
    purpose: str = "step"


SHARES = st.floats(0, 1)
CALLS = st.lists(
    st.builds(
        Call,
        st.integers(0, 40),
        SHARES,
        SHARES,
        SHARES,
        st.integers(0, 4),
        st.sampled_from(["reply", "reply", "reply", "reply", "uncounted", "failure", "wrong", "refused"]),
        st.sampled_from(["step", "grades"]),
    ),
    max_size=25,
)


def make_grades(calls: list[Call]) -> list[Call]:
    return [replace(call, purpose="grades") for call in calls]


BUDGETS = st.builds(
    Budget,
    calls=st.none() | st.integers(0, 20),
    tokens=st.none() | st.integers(0, 8_000),
    dollars=st.none() | st.floats(0, 5_000),
)


async def spend(purse: Purse, calls: list[Call], at_once: int) -> tuple[Usage, list[PaidReply | Exception]]:
    """Make the calls, some at one time; returns what a server would bill, and the outcomes."""
    billed, room = Usage(), asyncio.Semaphore(at_once)

    async def make(call: Call) -> PaidReply:
        request = Request(call.purpose, (("user", "word " * call.words),), 20)

        async def send() -> PaidReply:
            nonlocal billed
            for _ in range(call.turns):
                await asyncio.sleep(0)
            if call.end == "refused":
                raise UserError("refused")
            most = find_most_usage(request)
            prompt = int(most.prompt_tokens * call.prompt)
            used = Usage(1, prompt, int(prompt * call.cached), int(most.completion_tokens * call.completion))
            billed += Usage(1) if call.end == "failure" else used
            if call.end == "wrong":
                raise WrongReply("cut")
            if call.end == "failure":
                return PaidReply(Failure("no"), Usage(1))
            return PaidReply(Reply("yes"), Usage(1) if call.end == "uncounted" else used)

        async with room:
            return await purse.pay(request, send)

    found = await asyncio.gather(*map(make, calls), return_exceptions=True)
    return billed, [one for one in found if isinstance(one, PaidReply | Exception)]


def holds(budget: Budget, cost: Usage, share: float = 1) -> bool:
    costs = cost.calls, cost.prompt_tokens + cost.completion_tokens, compute_cost(cost, PRICES)
    limits = budget.calls, budget.tokens, budget.dollars
    return all(limit is None or spent <= limit * share for limit, spent in zip(limits, costs, strict=True))


@pytest.mark.slow
@settings(max_examples=1_000)
@given(BUDGETS, CALLS | CALLS.map(make_grades), st.integers(1, 8), st.floats(0, 1))
def test_no_profile_of_costs_exceeds_a_budget(budget: Budget, calls: list[Call], at_once: int, share: float) -> None:
    purse = Purse(budget, PRICES, shares={"grades": share})
    billed, found = asyncio.run(spend(purse, calls, at_once))
    assert len(found) == len(calls), "every call has an outcome"
    assert holds(budget, billed)
    if all(call.purpose == "grades" for call in calls):
        assert holds(budget, billed, share), "the rest of the budget is left"
    assert holds(budget, purse.spent)
    if budget == Budget():
        assert all(isinstance(one, Exception) or "budget" not in repr(one.outcome) for one in found)


@pytest.mark.parametrize(
    ("error", "calls"),
    [(TurnedAway("busy"), 0), (UserError("refused"), 0), (WrongReply("cut"), 1), (AssertionError("a defect"), 1)],
    ids=repr,
)
def test_only_a_call_that_the_server_did_not_take_costs_nothing(error: Exception, calls: int) -> None:
    async def send() -> PaidReply:
        raise error

    purse = Purse(Budget(), PRICES)
    with pytest.raises(type(error)):
        asyncio.run(purse.pay(ONE, send))
    assert purse.spent.calls == calls


@pytest.mark.parametrize("usage", [Usage(), Usage(1), Usage(1, 5, 2, 3)], ids=repr)
def test_a_failure_costs_what_the_server_counts(usage: Usage) -> None:
    """A server that refuses a prompt counts nothing. A model that refuses has read it."""

    async def send() -> PaidReply:
        return PaidReply(Failure("refused"), usage)

    purse = Purse(Budget(calls=1), PRICES)
    assert asyncio.run(purse.pay(ONE, send)).outcome == Failure("refused")
    assert purse.spent == usage


@pytest.mark.parametrize(
    ("budget", "sent"),
    [
        pytest.param(Budget(calls=3), 3, id="calls"),
        pytest.param(Budget(calls=0), 0, id="none"),
        pytest.param(Budget(tokens=MOST_TOKENS + 12), 7, id="tokens: the bound of the last call must fit"),
        pytest.param(Budget(tokens=MOST_TOKENS - 1), 0, id="tokens: less than the bound of one call"),
        pytest.param(Budget(dollars=compute_cost(MOST, PRICES) + 4), 3, id="dollars"),
        pytest.param(Budget(calls=2, tokens=10**9), 2, id="the smaller limit"),
    ],
)
def test_a_budget_is_used_up_to_the_bound_of_one_call(budget: Budget, sent: int) -> None:
    """A call costs 1 prompt token and 1 reply token here: 2 tokens, and 1.50 dollars."""
    times = 0

    async def send() -> PaidReply:
        nonlocal times
        times += 1
        await asyncio.sleep(0)
        return PaidReply(Reply("yes"), Usage(1, 1, 0, 1))

    async def run() -> None:
        purse = Purse(budget, PRICES)
        await asyncio.gather(*(purse.pay(ONE, send) for _ in range(10)))

    asyncio.run(run())
    assert times == sent


@pytest.mark.parametrize(
    ("extra", "reserved"),
    [
        ({"max_tokens": 5_000}, 5_000),
        ({"max_completion_tokens": 5_000, "max_tokens": 30}, 5_000),
        ({"max_output_tokens": 5_000}, 5_000),
        ({"n": 3}, 60),
        ({"max_tokens": 30, "n": 2}, 60),
        ({"max_tokens": 5}, 20),
        ({"max_tokens": None, "n": None, "top_p": 0.5}, 20),
    ],
    ids=repr,
)
def test_a_limit_among_the_further_fields_of_requests_is_set_aside(extra: dict[str, object], reserved: int) -> None:
    async def send() -> PaidReply:
        return PaidReply(Reply("yes"), Usage(1))

    most = MOST.prompt_tokens + reserved
    for tokens, outcome in ((most, Reply("yes")), (most - 1, Failure("the budget is spent"))):
        purse = Purse(Budget(tokens=tokens), None, extra=extra)
        assert asyncio.run(purse.pay(ONE, send)).outcome == outcome


def test_a_purpose_leaves_the_rest_of_the_budget_to_others() -> None:
    async def send() -> PaidReply:
        return PaidReply(Reply("yes"), Usage(1, 1, 0, 1))

    async def run() -> list[bool]:
        purse = Purse(Budget(calls=8), None, shares={"step": 0.75})
        requests = [*[ONE] * 8, *[replace(ONE, purpose="answer")] * 4]
        return [isinstance((await purse.pay(request, send)).outcome, Reply) for request in requests]

    assert asyncio.run(run()) == [True] * 6 + [False] * 2 + [True] * 2 + [False] * 2


def test_a_killed_run_continues_with_what_is_left(tmp_path: Path) -> None:
    """The first process has a reply, and is killed while it waits for another and writes about a third."""
    path = tmp_path / "costs.jsonl"

    async def reply() -> PaidReply:
        return PaidReply(Reply("yes"), Usage(1, 5, 2, 3))

    async def hang() -> PaidReply:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def run_first() -> None:
        purse = Purse(Budget(), None, path)
        await purse.pay(ONE, reply)
        waiting = asyncio.create_task(purse.pay(ONE, hang))
        await asyncio.sleep(0)
        assert not waiting.done()

    asyncio.run(run_first())
    with path.open("ab") as file:
        file.write(b'\n{"call":2,"calls":1,"prompt_tokens":99')
    purse = Purse(Budget(calls=3), None, path)
    assert purse.spent == Usage(1, 5, 2, 3) + MOST
    assert asyncio.run(purse.pay(ONE, reply)).outcome == Reply("yes")
    assert asyncio.run(purse.pay(ONE, reply)).outcome == Failure("the budget is spent")
    purse.close()
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    assert path.read_bytes()[:1] == b"{"
    assert lines[1] == {"call": 0, "calls": 1, "prompt_tokens": 5, "cached_tokens": 2, "completion_tokens": 3}
    assert lines[-1]["call"] == 2


def test_the_folder_of_the_costs_is_made(tmp_path: Path) -> None:
    Purse(Budget(), None, tmp_path / "out" / "costs.jsonl").close()
    assert (tmp_path / "out" / "costs.jsonl").exists()


@pytest.mark.parametrize("line", ['{"call": 0}', '{"call": 0, "calls": "a"}', "[0,1,5,2,3]", "{]"])
def test_a_damaged_record_of_costs_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "costs.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(UserError, match=r"costs\.jsonl: not a usable record of costs"):
        Purse(Budget(), None, path)
