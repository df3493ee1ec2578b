"""Narratives that a person could ask of a corpus, made by rules from its titles, headings and frequent phrases."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from string import capwords

from keystone.generation.rules.queries import INTERROGATIVES
from keystone.generation.rules.stands_alone import THIRD_PERSON, VERBS
from keystone.indexing.types import Document
from keystone.indexing.words import STOP_WORDS, find_content_words, find_stems

MOST_ASPECTS = 3
"""The most aspects of a subject that a narrative names."""
MOST_SUBJECT_WORDS = 16
MOST_ASPECT_WORDS = 6
READ_CHARACTERS = 4000
"""The characters of a document, from its beginning, that are read for a narrative."""
LEAST_REPEATS = 2
"""How often a phrase stands in a document at least, to be a subject."""

_BORDER = re.compile(r"\s*[:|\u00bb\u203a]\s+|\s+[-\u2013\u2014]+\s+")
"""What stands between the parts of a title, such as a page's and its site's name."""
_CODE = re.compile(r"[_(){}\[\]<>=*/\\`#@$%^~]|\.\w|\w[A-Z]|https?:|^\W|^\d")
"""Signs of a program's text, of which nobody would ask in a sentence."""
_PHRASE_WORD = re.compile(r"\b(?:[A-Z]{3}\b|[^\W\d_]{4,})(?:['\u2019-][^\W\d_]+)*")
_FURNITURE = frozenset(
    "introduction overview summary abstract conclusion conclusions contents references notes note examples example "
    "usage description background discussion methods results see also further reading index home".split()
)
"""Headings that name no subject."""
_NO_NOUNS = STOP_WORDS.union(VERBS, THIRD_PERSON)


@dataclass(frozen=True, slots=True)
class _Subject:
    text: str
    aspects: tuple[str, ...]


def make_narratives(documents: Sequence[Document], number: int, english: bool = True) -> list[str]:
    """Make up to `number` narratives from documents, which should be spread over a corpus, in their order.

    Each narrative is of one document, from another stretch of `documents`. In a stretch, the document with most
    aspects counts, then the one whose subject has the commonest terms. If the texts are not English, a narrative is
    its subject alone.
    """
    stems = [find_stems(f"{document.title} {document.text[:READ_CHARACTERS]}") for document in documents]
    counts = Counter(stem for own in stems for stem in own)
    subjects = [_find_subject(document, counts, len(documents)) for document in documents]

    def rate(subject: _Subject) -> tuple[int, float]:
        own = find_stems(subject.text)
        return len(subject.aspects), sum(math.log1p(counts[stem]) for stem in own) / max(len(own), 2)

    found: list[_Subject] = []
    for place in range(number):
        stretch = subjects[place * len(subjects) // number : (place + 1) * len(subjects) // number]
        known = [find_stems(subject.text) for subject in found]
        new = [one for one in stretch if one and find_stems(one.text) not in known]
        if new:
            found.append(max(new, key=rate))
    return [_ask(subject) if english else subject.text for subject in found]


def _ask(subject: _Subject) -> str:
    first, _, rest = subject.text.partition(" ")
    if first.lower() == "how" and rest.lower().startswith("to "):
        question = f"How do I {rest[3:].rstrip('?')}?"
    elif first.lower() in INTERROGATIVES:
        question = f"{first.capitalize()} {rest.rstrip('?')}?"
    else:
        question = f"What should I know about {subject.text}?"
    *others, last = subject.aspects or ("",)
    named = f"{', '.join(others)} and {last}" if others else last
    return f"{question} Explain also {named}." if named else question


def _find_subject(document: Document, counts: Counter[str], n: int) -> _Subject | None:
    """Find the subject of a document: the last part of its title that can be asked about, else its chief phrase."""
    text = document.text[:READ_CHARACTERS]
    parts = [part for part in _BORDER.split(document.title.strip()) if _can_be_asked(part, MOST_SUBJECT_WORDS)]
    headings = [
        line for line in document.headings.split("\n") if "," not in line and _can_be_asked(line, MOST_ASPECT_WORDS)
    ]
    distinct: list[str] = []
    known: set[str] = set()
    for name in chain(parts[-1:], headings if parts else (), _find_phrases(text, counts, n)):
        own = find_stems(name)
        if known.isdisjoint(own) and len(distinct) <= MOST_ASPECTS:
            known |= own
            distinct.append(_put_inside(name, text))
    if not distinct or (not parts and len(distinct) < 2):
        return None
    return _Subject(distinct[0], tuple(distinct[1:]))


def _can_be_asked(text: str, most_words: int) -> bool:
    words = find_content_words(text)
    return (
        bool(words)
        and len(text.split()) <= most_words
        and not _CODE.search(text)
        and not set(words) <= _FURNITURE
        and not text.rstrip().endswith((".", "!", ",", ":", ";"))
        and text.isprintable()
    )


def _find_phrases(text: str, counts: Counter[str], n: int) -> list[str]:
    """Find the phrases of two words that a text repeats, those with the rarest words first."""
    words = _PHRASE_WORD.findall(text)
    seen: Counter[tuple[str, str]] = Counter()
    forms: dict[tuple[str, str], str] = {}
    for first, second in pairwise(words):
        key = (first.lower(), second.lower())
        if _NO_NOUNS.isdisjoint(key) and f"{first} {second}" in text:
            seen[key] += 1
            forms.setdefault(key, f"{first} {second}")

    def weigh(key: tuple[str, str]) -> float:
        return seen[key] * sum(math.log((n + 1) / (counts[stem] + 0.5)) for stem in find_stems(" ".join(key)))

    repeated = [key for key, count in seen.items() if count >= LEAST_REPEATS]
    ranked = sorted(repeated, key=lambda key: (-weigh(key), key))
    return [capwords(forms[key]) if forms[key].isupper() else forms[key] for key in ranked]


def _put_inside(text: str, of: str) -> str:
    """Put a title inside a sentence: without a capital, unless it opens a name or a title in capitals.

    If the document has an article before it, so has the sentence.
    """
    first, *others = [word for word in re.split(r"\W+", text) if word] or [""]
    small = first[:1].lower() + first[1:]
    is_common = small.endswith("ing") or re.search(rf"\b{re.escape(small)}\b", of)
    is_titled = 2 * sum(word[0].isupper() for word in others) > len(others)
    if small not in STOP_WORDS and (is_titled or not is_common):
        return text
    put = text.replace(first, small, 1)
    article = re.search(rf"\b(the|an?) {re.escape(put)}\b", of, re.IGNORECASE)
    return f"{article[1].lower()} {put}" if article else put
