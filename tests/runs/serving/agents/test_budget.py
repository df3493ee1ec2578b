"""Replies within a budget of tokens: never more tokens, no item lost between two pages, and the text whole in parts."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.context.tokens import count_tokens
from keystone.indexing.errors import UserError
from keystone.runs.serving.agents.tools import LEAST_REPLY_TOKENS, Content, fit_items, fit_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3000)
BUDGETS = st.integers(LEAST_REPLY_TOKENS, 2000)


def make_part(text: str) -> Content:
    return {"id": "d1", "text": text}


@given(TEXTS, BUDGETS)
def test_the_longest_beginning_that_fits_is_taken(text: str, budget: int) -> None:
    reply, length = fit_text(make_part, text, budget)
    assert orjson.loads(reply) == {"id": "d1", "text": text[:length]}
    assert count_tokens(reply) <= budget
    if length < len(text):
        assert count_tokens(orjson.dumps(make_part(text[: length + 1])).decode()) > budget


@given(TEXTS.filter(bool), BUDGETS)
def test_parts_joined_are_the_text(text: str, budget: int) -> None:
    parts = []
    start = 0
    while start < len(text):
        reply, length = fit_text(make_part, text[start:], budget)
        parts.append(orjson.loads(reply)["text"])
        start += length
        assert length
    assert "".join(parts) == text


@given(st.lists(TEXTS, max_size=12), BUDGETS)
def test_items_fit_in_their_order_and_at_least_one_is_given(texts: list[str], budget: int) -> None:
    items = [{"id": number, "text": text} for number, text in enumerate(texts)]

    def make(shown: Sequence[Content]) -> dict[str, Any]:
        left = len(items) - len(shown)
        return {"items": shown, **({"rest": f"{left} items are left out"} if left else {})}

    reply, count = fit_items(make, items, "ask for more", budget)
    found = orjson.loads(reply)
    assert count_tokens(reply) <= budget
    shown = found["items"]
    assert len(shown) == count
    assert bool(shown) == bool(items)
    assert ("rest" in found) == (len(shown) < len(items))
    if shown and "cut" in shown[0]:
        assert count == 1
        assert texts[0].startswith(shown[0]["text"])
        assert shown[0]["text"] != texts[0]
    else:
        assert shown == items[: len(shown)]


def test_a_reply_that_cannot_fit_names_the_budget_it_needs() -> None:
    def make(text: str) -> Content:
        return {"id": "d" * 1000, "text": text}

    with pytest.raises(UserError, match="budget_tokens: found 200, expected 255 or more for this reply"):
        fit_text(make, "words", 200)
    assert fit_text(make, "w", 255)[1] == 1
