"""How long a text is for a language model."""

CHARACTERS = 4
"""Characters of a token: about right for English, too many for other scripts, so leave room beside a limit."""


def tokens(text: str) -> int:
    """The estimated number of tokens of a text: its characters / 4, rounded up. No model's own count is known here."""
    return -(-len(text) // CHARACTERS)


def clip(text: str, limit: int) -> str:
    """The text's longest beginning of at most `limit` tokens."""
    return text[: limit * CHARACTERS]
