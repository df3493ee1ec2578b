"""What the calls of a run have cost, by purpose."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from generation.types import Usage


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of a million tokens, in any currency. Cached tokens of prompts have a price of their own."""

    prompt: float
    completion: float
    cached: float


def add(one: Usage, other: Usage) -> Usage:
    """Both together."""
    return Usage(
        one.calls + other.calls,
        one.prompt_tokens + other.prompt_tokens,
        one.cached_tokens + other.cached_tokens,
        one.completion_tokens + other.completion_tokens,
        one.seconds + other.seconds,
        one.retries + other.retries,
        one.cache_hits + other.cache_hits,
    )


def cost(usage: Usage, prices: Prices) -> float:
    """What the tokens cost; `cached_tokens` are part of `prompt_tokens`."""
    full = usage.prompt_tokens - usage.cached_tokens
    parts = (full, prices.prompt), (usage.cached_tokens, prices.cached), (usage.completion_tokens, prices.completion)
    return sum(tokens * price for tokens, price in parts) / 1e6


def report(usages: Mapping[str, Usage], prices: Prices | None = None) -> dict[str, dict[str, float]]:
    """A table by purpose, in alphabetical order, and its `total`; with prices, what each has cost."""
    total = Usage()
    for usage in usages.values():
        total = add(total, usage)
    rows = {**dict(sorted(usages.items())), "total": total}
    return {
        purpose: asdict(usage) | ({} if prices is None else {"cost": cost(usage, prices)})
        for purpose, usage in rows.items()
    }
