"""The purse of a run, which pays for the calls of its model within a `Budget` of `usage.py`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from keystone.generation.llm.chat import PaidReply
from keystone.generation.llm.usage import BUDGET_SPENT, NO_FIELDS, Budget, Prices, compute_cost, find_most_usage
from keystone.generation.types import Failure, Request, Usage
from keystone.indexing.errors import TurnedAway, UserError, WrongReply

COST_FIELDS = ("call", "calls", "prompt_tokens", "cached_tokens", "completion_tokens")
"""The fields of a line in the file of costs: the number of the call from 0, then its usage."""
NO_PRICES = Prices(prompt=0, completion=0)
NO_SHARES: Mapping[str, float] = {}


class Purse:
    """The budget of a run, and the cost of its calls so far.

    Before a call is sent, the most that it can cost is set aside. So any number of calls at the same time keep within
    the budget. The file keeps each cost before the call and after it. So a run that was killed continues with what is
    left. A call that was cut off keeps what was set aside for it.

    `shares` holds, for some purposes of calls, the share of the budget up to which they are paid. The rest is left to
    other purposes. `extra` are the further fields of each request.
    """

    def __init__(
        self,
        budget: Budget,
        prices: Prices | None,
        path: Path | None = None,
        shares: Mapping[str, float] = NO_SHARES,
        extra: Mapping[str, Any] = NO_FIELDS,
    ) -> None:
        """Open the purse. `UserError` if the file cannot be written, or is damaged."""
        self._extra = extra
        self._budget, self._prices, self._shares, self._open = budget, prices or NO_PRICES, shares, 0
        self._costs: dict[int, Usage] = {}
        self.spent = Usage()
        """The cost of all calls, with what is set aside."""
        self._settled = asyncio.Event()
        self._file = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
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
        most, share = find_most_usage(request, self._extra), self._shares.get(request.purpose, 1.0)
        while not self._allows(most, share):
            if not self._open:
                left = "" if share == 1 else ", except the part for later steps"
                return PaidReply(Failure(f"{BUDGET_SPENT}{left}"), sent=False)
            await self._settled.wait()
        number = len(self._costs)
        self._record(number, most)
        self._open += 1
        cost = most
        try:
            answered = await send()
            found = answered.usage
            if isinstance(answered.outcome, Failure) or found.prompt_tokens:  # else the server counts no tokens
                cost = Usage(found.calls, found.prompt_tokens, found.cached_tokens, found.completion_tokens)
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
            self._settled = asyncio.Event()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def _allows(self, usage: Usage, share: float) -> bool:
        after, limit = self.spent + usage, self._budget
        costs = after.calls, after.prompt_tokens + after.completion_tokens, compute_cost(after, self._prices)
        limits = limit.calls, limit.tokens, limit.dollars
        return all(most is None or cost <= most * share for most, cost in zip(limits, costs, strict=True))

    def _record(self, number: int, usage: Usage) -> None:
        self._note(number, usage)
        if self._file:
            counts = usage.calls, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
            line = orjson.dumps(dict(zip(COST_FIELDS, (number, *counts), strict=True)))
            self._file.write(b"\n" * (self._file.tell() > 0) + line)  # so that a line that was cut stays alone

    def _note(self, number: int, usage: Usage) -> None:
        before = self._costs.get(number, Usage())
        less = Usage(-before.calls, -before.prompt_tokens, -before.cached_tokens, -before.completion_tokens)
        self.spent += less + usage
        self._costs[number] = usage
