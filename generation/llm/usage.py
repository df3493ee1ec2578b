"""The cost of a run's calls, by purpose, in tokens, seconds and dollars."""

from collections.abc import Mapping
from dataclasses import asdict

from pydantic import Field

from generation.types import Usage
from indexing.io.strict_settings import StrictSettings

MOST_DOLLARS = 1_000_000
"""The highest price of a million tokens that a configuration may name."""


class Prices(StrictSettings):
    """The model's prices, in US dollars for a million tokens. With them, `usage.json` shows the cost of each step."""

    prompt: float = Field(ge=0, le=MOST_DOLLARS)
    """The price of prompt tokens."""
    cached: float | None = Field(default=None, ge=0, le=MOST_DOLLARS)
    """The price of prompt tokens that the server had cached. If it is null, they cost as much as others."""
    completion: float = Field(ge=0, le=MOST_DOLLARS)
    """The price of reply tokens."""


def add_usage(one: Usage, other: Usage) -> Usage:
    """Add two usages field by field."""
    return Usage(
        one.calls + other.calls,
        one.prompt_tokens + other.prompt_tokens,
        one.cached_tokens + other.cached_tokens,
        one.completion_tokens + other.completion_tokens,
        one.seconds + other.seconds,
        one.retries + other.retries,
        one.cache_hits + other.cache_hits,
    )


def compute_cost(usage: Usage, prices: Prices) -> float:
    """Compute the price of the tokens in US dollars. `cached_tokens` are a part of `prompt_tokens`."""
    full = usage.prompt_tokens - usage.cached_tokens
    cached = prices.prompt if prices.cached is None else prices.cached
    parts = (full, prices.prompt), (usage.cached_tokens, cached), (usage.completion_tokens, prices.completion)
    return sum(tokens * price for tokens, price in parts) / 1e6


def report_usage(usages: Mapping[str, Usage], prices: Prices | None = None) -> dict[str, dict[str, float]]:
    """Report usage: a row for each purpose, in alphabetical order, then the row `total`.

    With prices, each row has its `cost` in US dollars.
    """
    total = Usage()
    for usage in usages.values():
        total = add_usage(total, usage)
    rows = {**dict(sorted(usages.items())), "total": total}
    return {
        purpose: asdict(usage) | ({} if prices is None else {"cost": compute_cost(usage, prices)})
        for purpose, usage in rows.items()
    }
