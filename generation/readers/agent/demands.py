"""What a search text demands of each document, beyond the words that rank it: `"a phrase"`, `+word`, `-word`.

`a AND b` demands both, and `NOT a` excludes it. Words and phrases are compared as written, without regard to case.
Keystone's indexes hold no places of words, so the demands are checked in the texts of the documents that a search for
the words has found. So every engine, and a fusion of several, gives the same documents.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from unicodedata import normalize

from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document

_PART = re.compile(r'([+-]?)"([^"]*)"|([+-](?=\w))?([^\s"]+)')
_MARKS = str.maketrans("\u201c\u201d\u201e\uff02", '""""')
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, order=True)
class Demands:
    """The words that rank the documents, and the phrases, each a tuple of words, that a document must hold or lack."""

    words: str
    held: tuple[tuple[str, ...], ...] = ()
    lacked: tuple[tuple[str, ...], ...] = ()

    def meets(self, document: Document) -> bool:
        """Whether the title and text of a document meet the demands."""
        text = _fold(document.contents)
        return all(_find(own, text) for own in self.held) and not any(_find(own, text) for own in self.lacked)


def read_demands(text: str) -> Demands | None:
    """Read the demands of a search text; None if it has none. `Unusable` names a syntax that cannot be read."""
    text = text.translate(_MARKS)
    if text.count('"') % 2:
        raise Unusable("a quotation mark without its partner")
    ranked, held, lacked = list[str](), list[tuple[str, ...]](), list[tuple[str, ...]]()
    both, excluded, either = False, False, False
    for sign, phrase, of_word, word in _PART.findall(text):
        if word in ("AND", "NOT", "OR"):
            both, excluded, either = word == "AND" or both, word == "NOT" or excluded, word == "OR" or either
            if word == "AND" and ranked and not excluded:
                held.append(_list_words(ranked[-1]))
            continue
        own = _list_words(phrase or word)
        if not own:
            continue
        if excluded or "-" in (sign, of_word):
            lacked.append(own)
        else:
            ranked.append(phrase or word)
            if phrase or both or "+" in (sign, of_word):
                held.append(own)
        both = excluded = False
    if not held and not lacked:
        return None
    if either:
        raise Unusable("OR beside words that are demanded")
    if not ranked:
        raise Unusable("no word to search for, only words to exclude")
    return Demands(" ".join(ranked), tuple(dict.fromkeys(held)), tuple(dict.fromkeys(lacked)))


def choose_rows(demands: Demands, rows: Sequence[int], documents: Sequence[Document]) -> tuple[int, ...]:
    """Choose the rows whose documents meet the demands, in their order."""
    return tuple(row for row, document in zip(rows, documents, strict=True) if demands.meets(document))


def _fold(text: str) -> str:
    return normalize("NFKC", text).casefold()


def _list_words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(_fold(text)))


def _find(words: tuple[str, ...], text: str) -> bool:
    return _compile(words).search(text) is not None


@lru_cache(256)
def _compile(words: tuple[str, ...]) -> re.Pattern[str]:
    """Compile a pattern of words in this order. Only ASCII words need an end: some scripts have no blanks."""
    begin, end = r"(?<!\w)" * words[0][0].isascii(), r"(?!\w)" * words[-1][-1].isascii()
    return re.compile(begin + r"[\W_]+".join(map(re.escape, words)) + end)
