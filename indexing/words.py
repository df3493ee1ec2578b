"""The words of texts: those with content, and their stems. The words without content are those of English."""

import re
from unicodedata import normalize

_MARKS = (
    "\u0300-\u036f\u064b-\u065f\u0670\u0900-\u0903\u093a-\u093c\u093e-\u094f\u0962\u0963\u0981-\u0983\u09bc\u09be-\u09cd"
    "\u09d7\u0c00-\u0c04\u0c3c\u0c3e-\u0c56\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
)
"""Accents, and the vowel signs of Arabic, Devanagari, Bengali, Telugu and Thai, which are not letters to `re`."""
_REST = rf"[^\W_]*(?:[{_MARKS}][^\W_]*)*"

WORD = re.compile(rf"[^\W\d_]{_REST}(?:['\u2019-][^\W_]{_REST})*")
"""A word begins with a letter, and may hold marks, digits, apostrophes and hyphens."""

STOP_WORDS = frozenset(
    """a about above after again against all almost along already also although always am among an and another any
    anyone anything are around as ask at away back be because become been before behind being below best better
    between both but by came can cannot case come could day did different do does doing done down during each either
    else enough especially even ever every everything example examples few find first for from further general get
    give given go going good got great had has have having he help helps her here hers him his how however i if
    important in including info information instead interest interested into is it its itself just keep kind kinds
    know known lack large last later learn least less let like likely little long look made main mainly make makes
    making many may me mean means might mine more most much must my need needed needs neither never new next no none
    nor not nothing now of off often on once one only onto or other others our out over own part people per perhaps
    please put quite rather really regarding said same say see seem seems several shall she should since so some
    someone something sometimes soon still such take tell than that the their them themselves then there these they
    thing things think this those though through thus to together too toward two type types under understand
    understanding until up upon us use used useful uses using various very via want wants was way ways we well were
    what whatever when where whether which while who whole whom whose why will with within without wonder wondering
    would yes yet you your""".split()
)

_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
"""Letters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""

STEM_LETTERS = 6
"""Words count as equal if they share this number of first letters."""


def find_words(text: str) -> list[str]:
    """Find the words of a text in order, as written."""
    return WORD.findall(text)


def find_content_words(text: str) -> list[str]:
    """Find the words of a text that carry content, in order, in lower case and with composed accents (NFC)."""
    words = map(str.lower, find_words(normalize("NFC", text)))
    return [word for word in words if word not in STOP_WORDS and len(word) > 1]


def find_stems(text: str) -> set[str]:
    """Find the stems of a text's content words."""
    return set(list_stems(text))


def list_stems(text: str) -> list[str]:
    """List the stems of a text's content words, in order. For a script without spaces, these are pairs of letters."""
    words = find_content_words(text)
    if not text.isascii() and _UNSPACED.search(text):
        words = [piece for word in words for piece in _cut_unspaced(word)]
    return [word.removesuffix("s")[:STEM_LETTERS] for word in words]


def _cut_unspaced(word: str) -> list[str]:
    """Cut a word of a script without spaces into its pairs of neighbouring letters; any other word stays whole."""
    if _UNSPACED.fullmatch(word) is None:
        return [word]
    return [word[place : place + 2] for place in range(len(word) - 1)]
