"""The cost of a run's calls, by purpose, in tokens, seconds and dollars; and a budget that limits it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from pydantic import Field

from keystone.generation.llm.chat import PaidReply
from keystone.generation.llm.dialects import write_tools
from keystone.generation.types import Failure, Request, Usage
from keystone.indexing.errors import TurnedAway, UserError, WrongReply
from keystone.indexing.settings import StrictSettings

if TYPE_CHECKING:
    from asyncio import Event

MOST_DOLLARS = 1_000_000
"""The highest price of a million tokens that a configuration may name."""


class Prices(StrictSettings):
    """The model's prices, in US dollars for a million tokens."""

    prompt: float = Field(ge=0, le=MOST_DOLLARS)
    """The price of prompt tokens."""
    cached: float | None = Field(default=None, ge=0, le=MOST_DOLLARS)
    """The price of prompt tokens that the server had cached; null: as others."""
    completion: float = Field(ge=0, le=MOST_DOLLARS)
    """The price of reply tokens."""


class Budget(StrictSettings):
    """The most that all calls of a run may cost together; of several limits, all hold."""

    calls: int | None = Field(default=None, ge=0)
    """The most calls. A call that the server refused is not counted."""
    tokens: int | None = Field(default=None, ge=0)
    """The most tokens of prompts and replies together."""
    dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The most US dollars, by `prices`."""


def add_usage(one: Usage, other: Usage) -> Usage:
    """Add two usages field by field."""
    return Usage(*(getattr(one, part) + getattr(other, part) for part in Usage.__slots__))


def compute_cost(usage: Usage, prices: Prices) -> float:
    """Compute the price of the tokens in US dollars. `cached_tokens` are a part of `prompt_tokens`."""
    full = usage.prompt_tokens - usage.cached_tokens
    cached = prices.prompt if prices.cached is None else prices.cached
    parts = (full, prices.prompt), (usage.cached_tokens, cached), (usage.completion_tokens, prices.completion)
    return sum(tokens * price for tokens, price in parts) / 1e6


def report_usage(usages: Mapping[str, Usage], prices: Prices | None = None) -> dict[str, dict[str, float]]:
    """Report usage by purpose, in alphabetical order, then `total`. With prices, a row has its `cost` in US dollars."""
    total = Usage()
    for usage in usages.values():
        total = add_usage(total, usage)
    rows = {**dict(sorted(usages.items())), "total": total}
    return {
        purpose: asdict(usage) | ({} if prices is None else {"cost": compute_cost(usage, prices)})
        for purpose, usage in rows.items()
    }


MESSAGE_TOKENS = 64
"""More tokens than a server's chat template adds to a message."""
BUDGET_SPENT = "the budget is spent"
"""How the reason of a call begins that was not sent."""
COST_FIELDS = ("call", "calls", "prompt_tokens", "cached_tokens", "completion_tokens")
"""The fields of a line in the file of costs: the number of the call from 0, then its usage."""
NO_PRICES = Prices(prompt=0, completion=0)
NO_SHARES: Mapping[str, float] = {}


def find_most_usage(request: Request) -> Usage:
    """Find the most that one call can cost: a token for each byte of the prompt, and a reply of `max_tokens`."""
    texts = [text for message in request.messages for text in message]
    schema = orjson.dumps(request.schema) if request.schema else b""
    tools = orjson.dumps(write_tools(request)) if request.functions else b""
    written = sum(len(text.encode()) for text in texts) + len(schema) + len(tools)
    prompt = written + MESSAGE_TOKENS * (len(request.messages) + 1)
    return Usage(calls=1, prompt_tokens=prompt, completion_tokens=request.max_tokens)


class Purse:
    """The budget of a run, and the cost of its calls so far.

    Before a call is sent, the most that it can cost is set aside. So the budget holds for any number of calls at one
    time. The file keeps each cost before the call and after it. So a run that was killed continues with what is left.
    A call that was cut off keeps what was set aside for it.

    `shares` holds, for some purposes of calls, the share of the budget up to which they are paid. The rest is left to
    other purposes.
    """

    def __init__(
        self, budget: Budget, prices: Prices | None, path: Path | None = None, shares: Mapping[str, float] = NO_SHARES
    ) -> None:
        """Open the purse. `UserError` if the file cannot be written, or is damaged."""
        self._budget, self._prices, self._shares, self._open = budget, prices or NO_PRICES, shares, 0
        self._costs: dict[int, Usage] = {}
        self.spent = Usage()
        """The cost of all calls, with what is set aside."""
        self._settled = _make_event()
        self._file = None
        if path is not None:
            try:
                for line in path.read_bytes().splitlines() if path.exists() else []:
                    if line.endswith((b"}", b"]")):  # else it was cut, and its call was not sent
                        found = orjson.loads(line)
                        number, *counts = (int(found[name]) for name in COST_FIELDS)
                        self._note(number, Usage(*counts))
                self._file = path.open("ab", buffering=0)
            except (OSError, ValueError, TypeError, KeyError) as error:
                raise UserError(f"{path}: not a usable record of costs: {error}") from error

    async def pay(self, request: Request, send: Callable[[], Awaitable[PaidReply]]) -> PaidReply:
        """Send a request if the budget allows its highest cost, now or after open calls; else return a `Failure`."""
        most, share = find_most_usage(request), self._shares.get(request.purpose, 1.0)
        while not self._allows(most, share):
            if not self._open:
                left = "" if share == 1 else ", but for the part of later steps"
                return PaidReply(Failure(f"{BUDGET_SPENT}{left}"))
            await self._settled.wait()
        number = len(self._costs)
        self._record(number, most)
        self._open += 1
        cost = most
        try:
            answered = await send()
            found = answered.usage
            if isinstance(answered.outcome, Failure) or found.prompt_tokens:  # else the server counts no tokens
                cost = Usage(1, found.prompt_tokens, found.cached_tokens, found.completion_tokens)
            return answered
        except WrongReply:  # the server may have counted it
            raise
        except (TurnedAway, UserError):  # the server did not take it
            cost = Usage()
            raise
        finally:
            self._open -= 1
            self._record(number, cost)
            self._settled.set()
            self._settled = _make_event()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def _allows(self, usage: Usage, share: float) -> bool:
        after, limit = add_usage(self.spent, usage), self._budget
        costs = after.calls, after.prompt_tokens + after.completion_tokens, compute_cost(after, self._prices)
        limits = limit.calls, limit.tokens, limit.dollars
        return all(most is None or cost <= most * share for most, cost in zip(limits, costs, strict=True))

    def _record(self, number: int, usage: Usage) -> None:
        self._note(number, usage)
        if self._file:
            counts = usage.calls, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
            self._file.write(b"\n" + orjson.dumps(dict(zip(COST_FIELDS, (number, *counts), strict=True))))

    def _note(self, number: int, usage: Usage) -> None:
        before = self._costs.get(number, Usage())
        less = Usage(-before.calls, -before.prompt_tokens, -before.cached_tokens, -before.completion_tokens)
        self.spent = add_usage(add_usage(self.spent, less), usage)
        self._costs[number] = usage


def _make_event() -> "Event":
    from asyncio import Event  # a process that only reads a configuration does not need it

    return Event()
