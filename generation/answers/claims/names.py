"""Names and numbers in a text, to find out whether another text has them."""

import re

_TOKEN = re.compile(r"\w+(?:\.\w+)*")
_COMMA = re.compile(r"(?<=\d),(?=\d)")
_END = re.compile(r"[.?!:]\s")


def find_names(text: str) -> dict[str, str]:
    """Find the names and numbers of a text as they are written, by their form in `split_words`.

    A name is a word with a capital inside a sentence, or with a digit, a point or an underscore inside the word. A name
    with points inside, such as `os.path`, is several.
    """
    plain, end, names = _COMMA.sub("", text), 0, dict[str, str]()
    for token in _TOKEN.finditer(plain):
        begins = end == 0 or bool(_END.search(plain, end, token.start()))
        end = token.end()
        if _is_name(token[0], begins):
            names |= dict.fromkeys(_split(token[0]), token[0])
    return names


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
