"""Key elements of facts, and the one form of all ways to write the same key (GraphReader, section 3.2).

The paper normalises keys as InsTag does, and gives no parameters. Here rules normalise them, so that a key has the same
form in every document. Keys with different numbers never have the same form.
"""

import re
import unicodedata
from difflib import SequenceMatcher

LEAST_RATIO = 0.9
"""How alike two keys are, from 0 to 1, if one can be a slip of the pen for the other."""
LONGEST_KEY = 100
"""The most characters of a key; a longer one is cut."""

DEMONYMS = {
    demonym: country
    for country, demonyms in {
        "america": "american",
        "australia": "australian",
        "austria": "austrian",
        "belgium": "belgian",
        "brazil": "brazilian",
        "britain": "british",
        "canada": "canadian",
        "china": "chinese",
        "denmark": "danish",
        "egypt": "egyptian",
        "england": "english",
        "europe": "european",
        "finland": "finnish",
        "france": "french",
        "germany": "german",
        "greece": "greek",
        "india": "indian",
        "ireland": "irish",
        "israel": "israeli",
        "italy": "italian",
        "japan": "japanese",
        "korea": "korean",
        "mexico": "mexican",
        "netherland": "dutch",
        "norway": "norwegian",
        "poland": "polish",
        "portugal": "portuguese",
        "russia": "russian",
        "scotland": "scottish",
        "spain": "spanish",
        "sweden": "swedish",
        "switzerland": "swiss",
        "turkey": "turkish",
        "ukraine": "ukrainian",
        "wale": "welsh",
    }.items()
    for demonym in demonyms.split()
}
"""Words for the people of a country, each with the form of the country's name."""

_NUMBER = re.compile(r"\d+")
_OPENING = " \t\n\r\"'`*_([{<\u00ab\u201c\u201e\u2018"
_CLOSING = " \t\n\r\"'`*_)]}>\u00bb\u201c\u201d\u2019,;:.!?\u2026"
_ARTICLE = re.compile(r"\A(?:(?:an?|the) )+(?=.)")


def find_numbers(text: str) -> tuple[str, ...]:
    """Find the whole numbers of a text in order, in the digits 0 to 9."""
    return tuple("".join(str(unicodedata.decimal(digit)) for digit in number) for number in _NUMBER.findall(text))


def tidy_key(written: str) -> str:
    """Put a key on one line, without quotes and brackets around it, cut to `LONGEST_KEY` characters."""
    return " ".join(written[: 2 * LONGEST_KEY].split())[:LONGEST_KEY].lstrip(_OPENING).rstrip(_CLOSING)


def normalise_key(written: str) -> str:
    """Normalise a key: letters and width (NFKC, case-folded), quotes, articles, plural s and words for peoples.

    The result is empty if nothing is left. Two keys with the same result have the same numbers.
    """
    form = fold_key(written)
    return DEMONYMS.get(form, form)


def fold_key(written: str) -> str:
    """Normalise a key as `normalise_key` does, but leave words for peoples."""
    text = tidy_key(written)
    composed = unicodedata.normalize("NFKC", text)
    if find_numbers(composed) == find_numbers(text):  # a raised 2 would join the number before it
        text = composed
    form = _ARTICLE.sub("", " ".join(text.casefold().split()), count=1)
    form = form.removesuffix("'s").removesuffix("\u2019s")
    before, blank, last = form.rpartition(" ")
    return f"{before}{blank}{_strip_plural(last)}"


def _strip_plural(word: str) -> str:
    if len(word) <= 3 or not word.isalpha() or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > 4 else word[:-1]


def is_slip(written: str, meant: str) -> bool:
    """Tell whether a key differs from another one by a slip of the pen: in few letters, and in no number."""
    written, meant = written.casefold()[:LONGEST_KEY], meant.casefold()[:LONGEST_KEY]
    if find_numbers(written) != find_numbers(meant):
        return False
    match = SequenceMatcher(None, written, meant, autojunk=False)
    return match.real_quick_ratio() >= LEAST_RATIO and match.quick_ratio() >= LEAST_RATIO <= match.ratio()
