"""Facts of a document without a model: each sentence is a fact, and rules find its key elements (GraphReader, 3.2)."""

import math
import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from keystone.indexing.structures.blocks import paragraphs, sentence_spans
from keystone.indexing.structures.fact_graph import LONGEST_KEY, normalise_key
from keystone.indexing.types import Document

FEWEST_CHARACTERS = 12
"""A shorter stretch of text is no fact."""
MOST_KEYS = 10
"""The most key elements of one fact. Names come first, then numbers, then other words."""
CONTENT_WORDS = 3
"""How many words that are no names are key elements of a fact: those of the highest TF-IDF."""
FEWEST_LETTERS = 4
"""A shorter word is a key element only as part of a name or a number."""

FUNCTION_WORDS = frozenset(
    """a about above after again against ago all almost along already also although always am among an and another any
    anyone anything are around as at away back be because become been before behind being below between both but by
    came can cannot come could did do does doing done down during each either else enough even ever every everyone
    everything few first for from further gave get give go going gone got had has have having he her here hers herself
    him himself his how however i if in indeed instead into is it its itself just keep kept knew know last later least
    less let like little long look looked made make many may maybe me might mine more most much must my myself never no
    none nor not nothing now of off often oh on once one ones only onto or other others our out over own perhaps put
    quite rather really said same saw say says see seem seemed seen several shall she should since so some someone
    something sometimes soon still such take taken tell than that the their them then there these they thing things
    think this those though thought through thus to together told too took toward towards two under until up upon us
    use used very want wanted was way we well went were what when where whether which while who whole whom whose why
    will with within without would yes yet you your""".split()
)
"""English words that are no key elements, in lower case."""

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W_][\w'\u2019&-]*")
_LINKS = frozenset(("of", "the", "de", "van", "von"))


class Fact(NamedTuple):
    """A fact: the stretch `text[start:end]` of a document, and its key elements as written there."""

    start: int
    end: int
    keys: tuple[str, ...]


def make_facts(document: Document) -> tuple[Fact, ...]:
    """Make the facts of a document, in the order of its text.

    Keys are capitalised names, numbers with their noun, and the words of the highest TF-IDF over the sentences.
    """
    spans = find_fact_spans(document.text)
    tokens = [list(_TOKEN.finditer(document.text, start, end)) for start, end in spans]
    words = [[token[0] for token in own if _is_content(token[0])] for own in tokens]
    tf = Counter(word for own in words for word in own)
    df = Counter(word for own in words for word in set(own))
    weight = {word: (1 + math.log(tf[word])) * math.log((1 + len(spans)) / df[word]) for word in tf}
    found = []
    for span, own, content in zip(spans, tokens, words, strict=True):
        best = sorted(dict.fromkeys(content), key=lambda word: -weight[word])[:CONTENT_WORDS]
        names = list(_find_names(document.text, own, df))
        amounts = _find_amounts(document.text, own, {place for first, last in names for place in range(first, last)})
        written = [*(document.text[own[i].start() : own[j - 1].end()] for i, j in names), *amounts, *best]
        keys = {normalise_key(key): key for key in reversed(written)}
        found.append(Fact(*span, tuple(key for form, key in reversed(keys.items()) if form)[:MOST_KEYS]))
    return tuple(found)


def find_fact_spans(text: str, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """Find the sentences of a stretch of text that can be facts, as (start, end) offsets into `text`."""
    return [
        span
        for paragraph in paragraphs(text, start, end)
        for span in sentence_spans(text, *paragraph)
        if span[1] - span[0] >= FEWEST_CHARACTERS
    ]


def _is_content(word: str) -> bool:
    return word[0].isalpha() and not word[0].isupper() and len(word) >= FEWEST_LETTERS and word not in FUNCTION_WORDS


def _find_names(text: str, tokens: Sequence[re.Match[str]], lower: Container[str]) -> Iterator[tuple[int, int]]:
    """Find runs of capitalised words, as (first, after the last) places of tokens.

    The first word of a sentence is no name of its own if it is in `lower`: the document writes it in lower case too.
    """
    words = [token[0] for token in tokens]
    at = 0
    while at < len(words):
        first = at
        while at < len(words) and _continues_name(text, tokens, first, at):
            at += 1
        last = at
        while first < last and words[last - 1] in _LINKS:
            last -= 1
        if first == 0 and last > 1 and _is_function(words[0]) > _is_function(words[1]):
            first = 1  # "The Council", and not "Never Too Loud"
        alone = last - first == 1 and (_is_function(words[first]) or (first == 0 and words[0].casefold() in lower))
        if first < last and not alone and tokens[last - 1].end() - tokens[first].start() <= LONGEST_KEY:
            yield first, last
        at = max(at, first + 1)


def _continues_name(text: str, tokens: Sequence[re.Match[str]], first: int, at: int) -> bool:
    """Tell whether the token at `at` belongs to a name that began at `first`."""
    word = tokens[at][0]
    if at == first:
        return word[0].isupper()
    before = tokens[at - 1][0]
    if before[0].isdecimal() or not text[tokens[at - 1].end() : tokens[at].start()].isspace():
        return False
    if word in _LINKS:
        return word != "the" or before == "of"
    return word[0].isupper() or (word.isdecimal() and not _is_function(before))


def _is_function(word: str) -> bool:
    return word.casefold() in FUNCTION_WORDS


def _find_amounts(text: str, tokens: Sequence[re.Match[str]], in_names: Container[int]) -> Iterator[str]:
    """Find numbers outside names, each with the noun that follows it."""
    for place, token in enumerate(tokens):
        if token[0][0].isdecimal() and place not in in_names:
            after = tokens[place + 1] if place + 1 < len(tokens) else token
            joined = text[token.end() : after.start()] == " " and _is_content(after[0])
            yield f"{token[0]} {after[0]}" if joined else token[0]
