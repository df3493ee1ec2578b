"""The languages of texts, guessed from their letters, and in Latin letters from their commonest words."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

LEAST_SHARE = 0.1
"""The least share of the texts that a language has, to be named."""
LEAST_COMMON_SHARE = 0.08
"""The least share of a text's words that are common ones of its language."""
LEAST_OWN_WORDS = 3
"""The least common words, each counted once, that tell the language of a passage in Latin letters."""
LEAST_UNLIKE_WORDS = 2
"""The least common words of another language in a sentence that differs from a passage."""
GUESSED_CHARACTERS = 2000
"""The characters of a text, from its beginning, by which its language is guessed."""

_COMMON_WORDS = {
    language: frozenset(words.split())
    for language, words in {
        "English": "the of and to in is that for it with was are this be by from as at on not or an have has had its "
        "which they were been but their can into than when about other will also these two during after over between "
        "out up only most some such who",
        "German": "der die und das nicht ist mit den von zu ein eine im auf dem des sich auch als für werden wurde bei "
        "aus nach durch einen einer sind um wird über zwei oder vor noch nur sie es",
        "French": "le la les des et est une dans du pour qui que pas sur en un par au aux avec sont ont ce cette de "
        "plus deux ou mais leur ses à",
        "Spanish": "el los las y que una por del con es para se como en la de un al más su sus fue son no lo dos pero "
        "este esta entre sobre cuando",
        "Italian": "il che di della per non una del sono con gli nel dei è la le e un in si da al alla delle anche "
        "più come ha due nella lo i",
        "Portuguese": "o os que não uma para com do da em um dos mais ao e a as no na por foi se são como das pela "
        "pelo dois entre mas",
        "Dutch": "het een van de en niet zijn dat op te met voor is aan in werd door ook bij naar uit worden wordt "
        "maar deze twee over heeft",
        "Swedish": "och att det som en på av för med den till inte är ett var från har om de eller två",
        "Danish": "og at det som en på af for med den til ikke er et var fra har om de eller blev to",
        "Norwegian": "og at det som en på av for med den til ikke er et var fra har om de eller ble to",
        "Finnish": "ja on ei se että oli myös ovat kuin mutta sen joka kun tai hän ole voi jotka",
        "Polish": "i w na z się nie do że jest to od o przez dla po jak oraz dwa jego było lub",
        "Czech": "a je se v na že s z do o jako po pro by k byl jsou nebo při ale také dva",
        "Hungarian": "a az és hogy nem is egy van meg ez volt csak mint de ki vagy két",
        "Romanian": "și de la cu nu pe din care este un o să sunt pentru mai prin sau două dar",
        "Turkish": "ve bir bu için ile da de çok olarak daha olan gibi kadar sonra iki veya ise",
        "Indonesian": "yang dan di dengan untuk dari ini pada itu tidak dalam adalah ke oleh akan telah juga dua",
        "Swahili": "ya wa kwa katika cha kuwa hii huo yake wote pia kama hivyo watu lakini ambayo",
        "Vietnamese": "và của là có trong được cho với không một các những đã ở này hai",
    }.items()
}
_ENGLISH_TOO = frozenset("die den des van de la no do as dos con com per son in is was an on to a i o e en par".split())
"""Common words of other languages that English sentences hold as well, some of them in names."""
_LETTERS = {
    language: re.compile(f"[{letters}]")
    for language, letters in {
        "Japanese": "\u3040-\u30ff",
        "Korean": "\uac00-\ud7af",
        "Chinese": "\u4e00-\u9fff",
        "Persian": "\u067e\u0686\u06af\u06cc",
        "Arabic": "\u0600-\u06ff",
        "Ukrainian": "\u0454\u0456\u0457",
        "Russian": "\u0400-\u04ff",
        "Greek": "\u0370-\u03ff",
        "Hebrew": "\u0590-\u05ff",
        "Hindi": "\u0900-\u097f",
        "Bengali": "\u0980-\u09ff",
        "Telugu": "\u0c00-\u0c7f",
        "Thai": "\u0e00-\u0e7f",
    }.items()
}
"""The letters of languages. If two share letters, the one with letters of its own comes first."""
SHARING_LETTERS = ({"Japanese", "Chinese"}, {"Persian", "Arabic"}, {"Ukrainian", "Russian"}, {"Danish", "Norwegian"})
"""Pairs of languages. A short text in one of them may be taken for a text in the other."""
ORDINAL_DOTS = ("", "German", "Danish", "Norwegian", "Finnish", "Polish", "Czech", "Hungarian", "Turkish")
"""Languages in which a number with a dot is an ordinal, as in `1. Mai`, and a language that no rule tells."""
_LEAST_LETTERS_SHARE = {"Japanese": 0.05, "Persian": 0.02, "Ukrainian": 0.02}
"""The least share of a text's letters that are a language's, for languages that also use the letters of another."""
_OTHER_LETTERS_SHARE = 0.3
_WORD = re.compile(r"[^\W\d_]+")


def guess_languages(texts: Iterable[str]) -> list[str]:
    """Guess the languages of texts, the commonest one first. A language of less than a tenth of them is left out."""
    guesses = [guess_language(text) for text in texts]
    counts = Counter(filter(None, guesses))
    return [language for language, count in counts.most_common() if count >= LEAST_SHARE * len(guesses)]


def guess_language(text: str) -> str:
    """Guess the language of a text; empty if no rule tells it."""
    words = [word.lower() for word in _WORD.findall(text[:GUESSED_CHARACTERS])]
    letters = "".join(words)
    if not letters:
        return ""
    for language, own in _LETTERS.items():
        share = len(own.findall(letters)) / len(letters)
        if share >= _LEAST_LETTERS_SHARE.get(language, _OTHER_LETTERS_SHARE):
            return language
    held = Counter(words)
    counts = {language: sum(held[word] for word in common) for language, common in _COMMON_WORDS.items()}
    best = max(counts, key=lambda language: counts[language])
    return best if counts[best] >= LEAST_COMMON_SHARE * len(words) else ""


def is_surely_in(language: str, text: str, other: str) -> bool:
    """Whether a text that is guessed to be in `language` and not in the `other` one has more than names of it."""
    common = _COMMON_WORDS.get(language)
    own = common and (common - _COMMON_WORDS.get(other, frozenset())).intersection(text.split())
    return own is None or len(own) >= LEAST_OWN_WORDS


def differ_in_language(sentence: str, passage: str, language: str = "") -> bool:
    """Whether a sentence is in another language or script than a passage, as far as letters and common words tell.

    The name of the passage's `language`, if it is known, and a guess of the sentence's decide. Otherwise, words with a
    capital count for English alone, since names in English sentences are often of other languages. If no rule tells,
    the two do not differ.
    """
    if language and (own := guess_language(sentence)):
        return own != language
    scripts = {guess_script(sentence), guess_script(passage)} - {""}
    if scripts != {"LATIN"}:
        languages = {guess_language(sentence), guess_language(passage)} - {""}
        return len(scripts) > 1 or (bool(scripts) and len(languages) > 1)
    own = guess_language(passage)
    sure = _COMMON_WORDS.get(own, frozenset())
    if own != "English":
        sure = frozenset(word for word in sure - _COMMON_WORDS["English"] - _ENGLISH_TOO if word[1:])
    if len(sure.intersection(passage.lower().split())) < LEAST_OWN_WORDS:
        return False
    every = _WORD.findall(sentence[:GUESSED_CHARACTERS])
    words = [word for word in every if word[0].islower()]
    english = [word.lower() for word in every]
    for language in _COMMON_WORDS.keys() - {own}:
        unlike = _COMMON_WORDS[language] - _COMMON_WORDS[own] - (_ENGLISH_TOO if own == "English" else frozenset())
        like = _COMMON_WORDS[own] - _COMMON_WORDS[language]
        told = english if language == "English" else words
        found = sum(word in unlike or (own == "English" and not word.isascii()) for word in told)
        if found >= LEAST_UNLIKE_WORDS and found > 2 * sum(word in like for word in english):
            return True
    return False


def guess_script(text: str) -> str:
    """Guess the script of a text by Unicode's names of its letters; empty for a text without letters."""
    text = text[:GUESSED_CHARACTERS]
    if text.isascii():
        return "LATIN" if any(map(str.isalpha, text)) else ""
    counts = Counter[str]()
    for letter, count in Counter(filter(str.isalpha, unicodedata.normalize("NFKC", text))).items():
        name = unicodedata.name(letter, "").split(" ")[0].split("-")[0]
        counts["CJK" if name in ("HIRAGANA", "KATAKANA", "BOPOMOFO") else name] += count
    others = [(count, name) for name, count in counts.items() if name != "LATIN"]
    if others and max(others)[0] >= _OTHER_LETTERS_SHARE * counts.total():
        return max(others)[1]
    return "LATIN" if counts else ""
