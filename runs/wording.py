"""Text for people: numbers with their nouns, and text whose control characters cannot reach the terminal."""

import re
import unicodedata

_UNPRINTABLE = re.compile(r"[^\n\t\x20-\x7e]")
_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of control and format characters, lone surrogates, and other line separators."""


def plural(number: int, noun: str, nouns: str = "") -> str:
    """Join a number and its noun: `1 warning`, `2 warnings`, `1,000 replies` (`nouns`: a plural other than with s)."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def count_documents(number: int | None) -> str:
    """Tell the number of documents of an index; None if only its server knows it."""
    return "documents of a server" if number is None else plural(number, "document")


def format_seconds(seconds: float) -> str:
    """Format a time with its unit: `0.4 s`, `41 s`, `3 min 12 s`, `2 h 5 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def escape_controls(text: str) -> str:
    """Write control and format characters as Python's escapes. Line ends and tabs stay."""
    return _UNPRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    letter = match[0]
    return letter.encode("unicode_escape").decode() if unicodedata.category(letter) in _OBEYED else letter
