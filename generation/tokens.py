"""How long a text is for a language model, estimated: no model's own count is known here."""

import re

CHARACTERS = 4
"""Characters of a token, about right for English; from `WIDE` on (Chinese, Japanese, Korean) each counts as one."""
WIDE = "\u2e80"
_WIDE = re.compile(f"[{WIDE}-\U0010ffff]")


def tokens(text: str) -> int:
    """The estimated number of tokens of a text."""
    wide = 0 if text.isascii() else len(_WIDE.findall(text))
    return wide - (wide - len(text)) // CHARACTERS


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
