"""The estimate of tokens, and the longest beginning of a text within a limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.context.texts import clip, count_tokens

TEXTS = st.text(st.sampled_from("ab \u00e9\u4e2d\u6587\U0001f41d"), max_size=40)


@pytest.mark.parametrize(
    ("text", "estimate"),
    [
        pytest.param("", 0, id="nothing"),
        pytest.param("abc", 1, id="rounded up"),
        pytest.param("abcde", 2, id="four characters a token"),
        pytest.param("\u4e2d\u6587", 2, id="one for each Chinese character"),
        pytest.param("\u4e2d\u6587 ab", 3, id="mixed"),
        pytest.param("\u00e9t\u00e9", 1, id="accents count as letters"),
    ],
)
def test_the_estimate_of_tokens(text: str, estimate: int) -> None:
    assert count_tokens(text) == estimate


@given(TEXTS, st.integers(0, 12))
def test_the_longest_beginning_within_a_limit(text: str, limit: int) -> None:
    kept = clip(text, limit)
    assert text.startswith(kept)
    assert count_tokens(kept) <= limit
    assert kept == text or count_tokens(text[: len(kept) + 1]) > limit
