"""How long a text is for a language model, estimated: no model's own count is known here."""

import re
from collections.abc import Sequence

import numpy as np

CHARACTERS = 4
"""Characters of a token, about right for English; from `WIDE` on (Chinese, Japanese, Korean) each counts as one."""
WIDE = "\u2e80"
_WIDE = re.compile(f"[{WIDE}-\U0010ffff]")


def tokens(text: str) -> int:
    """The estimated number of tokens of a text."""
    wide = 0 if text.isascii() else len(_WIDE.findall(text))
    return tokens_of(len(text) + (CHARACTERS - 1) * wide)


def tokens_of(weight: int) -> int:
    """The tokens of a text of this weight: 1 a character, `CHARACTERS` a wide one. The weights of texts add up."""
    return -(-weight // CHARACTERS)


def weights_before(text: str) -> Sequence[int]:
    """The weight of what stands before each place of a text, and of the whole text at the end."""
    if text.isascii():
        return range(len(text) + 1)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    weights: list[int] = np.cumsum(np.where(codes >= ord(WIDE), CHARACTERS, 1)).tolist()
    return [0, *weights]


def clip(text: str, limit: int) -> str:
    """The text's longest beginning of at most `limit` tokens."""
    start = text[: limit * CHARACTERS]
    if start.isascii():
        return start
    left = limit * CHARACTERS
    for place, character in enumerate(start):
        left -= CHARACTERS if character >= WIDE else 1
        if left < 0:
            return start[:place]
    return start
