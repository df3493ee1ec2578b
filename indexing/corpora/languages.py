"""The languages of texts, guessed from their letters, and in Latin letters from their commonest words."""

import re
from collections import Counter
from collections.abc import Iterable

LEAST_SHARE = 0.1
"""The least share of the texts that a language has, to be named."""
LEAST_COMMON_SHARE = 0.08
"""The least share of a text's words that are common ones of its language."""
GUESSED_CHARACTERS = 2000
"""The characters of a text, from its beginning, by which its language is guessed."""

_COMMON_WORDS = {
    language: frozenset(words.split())
    for language, words in {
        "English": "the of and to in is that for it with was are this be",
        "German": "der die und das nicht ist mit den von zu ein eine im auf",
        "French": "le la les des et est une dans du pour qui que pas sur",
        "Spanish": "el los las y que una por del con es para se como en",
        "Italian": "il che di della per non una del sono con gli nel dei è",
        "Portuguese": "o os que não uma para com do da em um dos mais ao",
        "Dutch": "het een van de en niet zijn dat op te met voor is aan",
    }.items()
}
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
        "Thai": "\u0e00-\u0e7f",
    }.items()
}
"""The letters of languages. Of two that share letters, the one with letters of its own comes first."""
_LEAST_LETTERS_SHARE = {"Japanese": 0.05, "Persian": 0.02, "Ukrainian": 0.02}
"""The least share of a text's letters that are a language's, for languages that also use the letters of another."""
_OTHER_LETTERS_SHARE = 0.3
_WORD = re.compile(r"[^\W\d_]+")


def guess_languages(texts: Iterable[str]) -> list[str]:
    """Guess the languages of texts, the commonest one first. A language of fewer than a tenth of them is left out."""
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
    counts = {language: sum(word in common for word in words) for language, common in _COMMON_WORDS.items()}
    best = max(counts, key=lambda language: counts[language])
    return best if counts[best] >= LEAST_COMMON_SHARE * len(words) else ""
