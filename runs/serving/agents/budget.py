"""Replies as JSON that fit into a budget of tokens. If a reply is cut, it says so and tells how to get the rest."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from keystone.generation.context.tokens import clip, count_tokens
from keystone.indexing.errors import UserError

DEFAULT_REPLY_TOKENS = 4000
LEAST_REPLY_TOKENS = 200
MOST_REPLY_TOKENS = 100_000

Reply = Mapping[str, Any]


def format_reply(reply: Reply) -> str:
    """Format a reply as one line of JSON."""
    return orjson.dumps(reply).decode()


def fit_text(make: Callable[[str], Reply], text: str, budget_tokens: int) -> tuple[str, int]:
    """Format the reply that holds the longest beginning of a text; returns it and the number of characters.

    `make` makes a reply from a beginning of the text. `UserError` if the reply exceeds the budget without any text.
    """
    longest = _find_most(
        lambda count: count_tokens(format_reply(make(text[:count]))) <= budget_tokens,
        len(clip(text, budget_tokens)),
    )
    least = count_tokens(format_reply(make(text[:1])))
    if least > budget_tokens:
        raise UserError(f"budget_tokens: found {budget_tokens}, expected {least} or more for this reply")
    return format_reply(make(text[:longest])), longest


def fit_items(
    make: Callable[[Sequence[Reply]], Reply], items: Sequence[Reply], cut_note: str, budget_tokens: int
) -> tuple[str, int]:
    """Format the reply that holds as many of the first items as the budget allows, at least one; returns their number.

    `make` makes a reply from the first items. If the budget is too small for the first item, its `text` is cut, and
    its key `cut` gets the note. `UserError` if the reply exceeds the budget without any text.
    """
    most = _find_most(lambda count: count_tokens(format_reply(make(items[:count]))) <= budget_tokens, len(items))
    if most or not items:
        return format_reply(make(items[:most])), most
    first = items[0]
    reply, _ = fit_text(lambda text: make([{**first, "text": text, "cut": cut_note}]), first["text"], budget_tokens)
    return reply, 1


def _find_most(fits: Callable[[int], bool], most: int) -> int:
    """Find a count that fits, 0 to `most`: `most` if it fits, and else by bisection one whose successor does not."""
    if fits(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
