"""Names and numbers in a text, to find out whether another text has them."""

import re

_TOKEN = re.compile(r"\w+(?:\.\w+)*")
_COMMA = re.compile(r"(?<=\d),(?=\d)")
_BEGINS = re.compile(r"(?:^|[.?!:]\s)\W*$")


def find_names(text: str) -> set[str]:
    """Find the names and numbers of a text, in the form of `split_words`.

    A name is a word with a capital inside a sentence, or with a digit, a point or an underscore inside the word. A name
    with points inside, such as `os.path`, is several.
    """
    plain = _COMMA.sub("", text)
    return {
        part
        for token in _TOKEN.finditer(plain)
        if _is_name(token[0], bool(_BEGINS.search(plain[: token.start()])))
        for part in _split(token[0])
    }


def split_words(text: str) -> set[str]:
    """Split a text into its words, without regard to case and to a final s."""
    return {part for token in _TOKEN.findall(_COMMA.sub("", text)) for part in _split(token)}


def _split(token: str) -> list[str]:
    return [part.removesuffix("s") for part in token.casefold().split(".")]


def _is_name(token: str, begins: bool) -> bool:
    """Whether a token is a name; a capital at the beginning of a sentence says nothing."""
    if any(character.isdigit() or character in "._" for character in token):
        return True
    return len(token) > 1 and any(character.isupper() for character in token[begins:])
