"""Anserini's analyzers, which turn a text into stems.

The one for English works without Java: tokens by Unicode's rules, lower case, no stop words, Porter stems.

It knows the texts that consist of ASCII, Latin-1 and the usual marks between words, which is nearly every text in
English. `find_stems` returns None for any other text, which Lucene's own analyzer then reads.
"""

import re
from functools import cache
from typing import Any

from keystone.indexing.languages import DEFAULT_LANGUAGE
from keystone.indexing.lucene.java import JAVA_LOCK, java_class
from keystone.indexing.lucene.write import make_analyzer


def stems_of(text: str, language: str = DEFAULT_LANGUAGE) -> list[str]:
    """Return the stems of a text in order, as an index of Anserini holds them."""
    stems = find_stems(text) if language == DEFAULT_LANGUAGE else None
    return find_lucene_stems(text, language) if stems is None else stems


def find_lucene_stems(text: str, language: str = DEFAULT_LANGUAGE) -> list[str]:
    """Find the stems of any text by Lucene itself."""
    with JAVA_LOCK:
        analysis, analyzer = _analysis(language)
        shown: str = analysis.analyze(analyzer, text).toString()
    return shown[1:-1].split(", ") if len(shown) > 2 else []


@cache
def _analysis(language: str) -> tuple[Any, Any]:
    return java_class("io.anserini.analysis.AnalyzerUtils"), make_analyzer(language)


KEPT_STEMS = 1 << 16
LONGEST_TOKEN = 255
"""The characters of the longest token that Lucene does not divide."""

_LETTER, _DIGIT = "A-Za-zªµºÀ-ÖØ-öø-ÿ", "0-9"
_SEPARATORS = (  # spaces, dashes, quotation marks, bullets, currencies, arrows, signs of mathematics, lines of boxes
    r"\xa0¡-¨«¬¯-´¶¸¹»-¿×÷\u2000-\u200a\u2010-\u2017\u201a-\u2023\u2025\u2026\u2030-\u203b\u20a0-\u20bf\u2190-\u2193"
    r"\u2200-\u22ff\u2500-\u25a9"
)
_KNOWN = re.compile(rf"[\t\n\r -~{_LETTER}{_SEPARATORS}‘’]*")
# Unicode Standard Annex 29, rules WB5 to WB13b: some marks join two letters, or two digits, and end a token elsewhere.
# The group is not possessive: CPython before 3.11.5 loses its place where the last try of such a group fails.
_TOKEN = re.compile(
    rf"[{_LETTER}{_DIGIT}_]++(?:[,;:.'‘’](?:(?<=[{_LETTER}][:.'‘’])(?=[{_LETTER}])|(?<=[{_DIGIT}][,;.'‘’])(?=[{_DIGIT}]))"
    rf"[{_LETTER}{_DIGIT}_]++)*"
)
_POSSESSIVE = ("'s", "’s", "'S", "’S")
_STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)


def find_stems(text: str) -> list[str] | None:
    """Find the stems of a text in order, as Lucene's analyzer does; None for a text that only Lucene can read."""
    if _KNOWN.fullmatch(text) is None:
        return None
    tokens = _TOKEN.findall(text)
    if max(map(len, tokens), default=0) > LONGEST_TOKEN:
        return None
    return list(filter(None, map(_STEMS.__getitem__, tokens)))


class _Stems(dict[str, str]):
    """The stems of tokens, of which only so many are kept: a table that C reads for a whole text."""

    def __missing__(self, token: str) -> str:
        if len(self) >= KEPT_STEMS:
            self.clear()
        stem = self[token] = _reduce_token(token)
        return stem


_STEMS = _Stems()


def _reduce_token(token: str) -> str:
    """Reduce a token to its stem; "" for a stop word, and for a token without a letter or digit."""
    word = (token[:-2] if token.endswith(_POSSESSIVE) else token).lower()
    return "" if word in _STOP_WORDS or not word.strip("_") else stem_word(word)


# Porter (1980), with the two changes of his later program, as Lucene has them: "bli" in place of "abli", and "logi".
_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = dict.fromkeys(
    "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize".split(), ""
)  # fmt: skip


def _by_end(step: dict[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Group suffixes with their replacements by the last two letters, the longest first."""
    longest_first = sorted(step.items(), key=lambda pair: -len(pair[0]))
    return {end: [pair for pair in longest_first if pair[0].endswith(end)] for end in {name[-2:] for name in step}}


_STEPS = [(_by_end(step), least) for step, least in ((_STEP_2, 0), (_STEP_3, 0), (_STEP_4, 1))]
"""The suffixes of each step, and the measure that the rest of the word must exceed."""


def stem_word(word: str) -> str:
    """Stem a word in lower case by Porter's algorithm (Program 14(3), 1980)."""
    if len(word) <= 2:
        return word
    if word[-1] in "sdg":
        word = _drop_inflection(word)
    if word[-1] == "y" and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    for by_end, least in _STEPS:
        if suffixes := by_end.get(word[-2:]):
            word = _replace_suffix(word, suffixes, least)
    if word[-1] == "e":
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _drop_inflection(word: str) -> str:
    """Steps 1a and 1b: plurals, -ed and -ing."""
    if word[-1] == "s":
        if word.endswith(("sses", "ies")):
            word = word[:-2]
        elif word[-2] != "s":
            word = word[:-1]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix) and _has_vowel(word[: -len(suffix)]):
            word = word[: -len(suffix)]
            if word.endswith(("at", "bl", "iz")):
                return word + "e"
            if _ends_double(word):
                return word if word[-1] in "lsz" else word[:-1]
            return word + "e" if _measure(word) == 1 and _ends_short(word) else word
    return word


def _replace_suffix(word: str, suffixes: list[tuple[str, str]], least: int) -> str:
    """Replace the first of the suffixes that the word has, if the measure of the rest is above `least`."""
    for suffix, replacement in suffixes:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            if suffix == "ion" and rest[-1:] not in ("s", "t"):
                return word
            return rest + replacement if _measure(rest) > least else word
    return word


_FORMS = bytes(ord("v") if chr(code) in "aeiou" else ord("c") for code in range(256))
"""A v for each vowel, and a c for any other character."""


def _form(word: str) -> bytes:
    """Write a v for each vowel and a c for each consonant of a word; y is a vowel after a consonant."""
    form = word.encode("latin-1", "replace").translate(_FORMS)
    at = word.find("y", 1)
    while at > 0:
        if form[at - 1 : at] == b"c":
            form = form[:at] + b"v" + form[at + 1 :]
        at = word.find("y", at + 1)
    return form


def _measure(word: str) -> int:
    """Count the times that a consonant follows a vowel."""
    return _form(word).count(b"vc")


def _has_vowel(word: str) -> bool:
    return b"v" in _form(word)


def _ends_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _form(word).endswith(b"c")


def _ends_short(word: str) -> bool:
    """Whether a word ends by consonant, vowel, consonant, and the last is not w, x or y."""
    return _form(word).endswith(b"cvc") and word[-1] not in "wxy"
