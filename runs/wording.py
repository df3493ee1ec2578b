"""Words for people: numbers with their nouns, and text of anybody that a terminal shows and does not obey."""

import re
import unicodedata

_UNPRINTABLE = re.compile(r"[^\n\t\x20-\x7e]")
_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of control and format characters, lone surrogates, and other line ends."""


def plural(number: int, noun: str, nouns: str = "") -> str:
    """A number and its noun: `1 warning`, `2 warnings`, `1,000 replies` (`nouns` where it does not end with s)."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def plain(text: str) -> str:
    """Text in which control and format characters are written as escapes of Python; line ends and tabs stay."""
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    letter = match[0]
    return letter.encode("unicode_escape").decode() if unicodedata.category(letter) in _OBEYED else letter
