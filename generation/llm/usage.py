"""The cost of a run's calls, by purpose, in tokens, seconds and dollars, and the settings of prices and budgets."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson
from pydantic import Field

from keystone.generation.llm.dialects import write_tools
from keystone.generation.types import Request, Usage
from keystone.indexing.io.json_values import read_whole_number
from keystone.indexing.settings import StrictSettings

MOST_DOLLARS = 1_000_000
"""The highest price of a million tokens that a configuration may name."""


class Prices(StrictSettings):
    """The model's prices, in US dollars for a million tokens."""

    prompt: float = Field(ge=0, le=MOST_DOLLARS)
    """The price of prompt tokens."""
    cached: float | None = Field(default=None, ge=0, le=MOST_DOLLARS)
    """The price of prompt tokens that the server had cached; null: `prompt`."""
    completion: float = Field(ge=0, le=MOST_DOLLARS)
    """The price of reply tokens."""


class Budget(StrictSettings):
    """The most that all calls of a run may cost together; every limit holds."""

    calls: int | None = Field(default=None, ge=0)
    """The most calls. A call that the server refused is not counted."""
    tokens: int | None = Field(default=None, ge=0)
    """The most tokens of prompts and replies together."""
    dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The most US dollars, by `prices`."""


def compute_cost(usage: Usage, prices: Prices) -> float:
    """Compute the price of the tokens in US dollars. `cached_tokens` are a part of `prompt_tokens`."""
    full = usage.prompt_tokens - usage.cached_tokens
    cached = prices.prompt if prices.cached is None else prices.cached
    parts = (full, prices.prompt), (usage.cached_tokens, cached), (usage.completion_tokens, prices.completion)
    return sum(tokens * price for tokens, price in parts) / 1e6


def report_usage(usages: Mapping[str, Usage], prices: Prices | None = None) -> dict[str, dict[str, float]]:
    """Report usage by purpose, in alphabetical order, then `total`. With prices, a row has its `cost` in US dollars."""
    rows = {**dict(sorted(usages.items())), "total": sum(usages.values(), Usage())}
    return {
        purpose: asdict(usage) | ({} if prices is None else {"cost": compute_cost(usage, prices)})
        for purpose, usage in rows.items()
    }


MESSAGE_TOKENS = 64
"""More tokens than a server's chat template adds to a message."""
BUDGET_SPENT = "the budget is spent"
"""How the reason begins if a call was not sent."""
REPLY_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The fields of a request that limit the tokens of its reply."""
NO_FIELDS: Mapping[str, Any] = {}


def find_most_usage(request: Request, extra: Mapping[str, Any] = NO_FIELDS) -> Usage:
    """Find the most that one call can cost: a token for each byte of the prompt, and a reply of `max_tokens`.

    If the further fields `extra` raise the limit of a reply, that limit counts. They may also ask for `n` replies.
    """
    texts = [text for message in request.messages for text in message]
    schema = orjson.dumps(request.schema) if request.schema else b""
    tools = orjson.dumps(write_tools(request)) if request.functions else b""
    written = sum(len(text.encode()) for text in texts) + len(schema) + len(tools)
    prompt = written + MESSAGE_TOKENS * (len(request.messages) + 1)
    most = max(request.max_tokens, *(read_whole_number(extra.get(name)) or 0 for name in REPLY_LIMITS))
    replies = max(1, read_whole_number(extra.get("n")) or 1)
    return Usage(calls=1, prompt_tokens=prompt, completion_tokens=most * replies)
