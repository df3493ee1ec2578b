"""Estimates of the tokens of a text. They need no model's own tokenizer."""

import re
from collections.abc import Sequence

import numpy as np

CHARACTERS_PER_TOKEN = 4
"""The characters of an English token, about. A wide character (Chinese, Japanese, Korean) is a token of its own."""
FIRST_WIDE_CHARACTER = "\u2e80"
"""The first of the characters that count as wide."""
_WIDE = re.compile(f"[{FIRST_WIDE_CHARACTER}-\U0010ffff]")


def count_tokens(text: str) -> int:
    """Estimate the number of tokens of a text."""
    wide = 0 if text.isascii() else len(_WIDE.findall(text))
    return convert_weight(len(text) + (CHARACTERS_PER_TOKEN - 1) * wide)


def convert_weight(weight: int) -> int:
    """Convert a weight to tokens: a character weighs 1, and a wide one `CHARACTERS_PER_TOKEN`. Weights can be added."""
    return -(-weight // CHARACTERS_PER_TOKEN)


def weigh_prefixes(text: str) -> Sequence[int]:
    """Weigh the beginnings of a text: int[characters + 1], from 0 to the weight of the whole text."""
    if text.isascii():
        return range(len(text) + 1)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    weights: list[int] = np.cumsum(np.where(codes >= ord(FIRST_WIDE_CHARACTER), CHARACTERS_PER_TOKEN, 1)).tolist()
    return [0, *weights]


def clip(text: str, limit: int) -> str:
    """Cut a text to its longest beginning of at most `limit` tokens."""
    start = text[: limit * CHARACTERS_PER_TOKEN]
    if start.isascii():
        return start
    left = limit * CHARACTERS_PER_TOKEN
    for place, character in enumerate(start):
        left -= CHARACTERS_PER_TOKEN if character >= FIRST_WIDE_CHARACTER else 1
        if left < 0:
            return start[:place]
    return start
