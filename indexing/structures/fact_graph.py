"""The graph of key elements: two keys are neighbours if a fact holds both (GraphReader, section 3.2).

The paper links two keys if each appears in the facts of the other. Its example (Figures 21 and 23) shows that this is
co-occurrence after normalisation. So the paper does not search for one key in the text of the other's facts.

The paper normalises keys as InsTag does, and gives no parameters. Here rules normalise them, so that a key has the same
form in every document. Keys with different numbers never have the same form.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import NamedTuple

from keystone.indexing.structures.blocks import paragraphs, sentence_spans
from keystone.indexing.types import Document

LEAST_RATIO = 0.9
"""How alike two keys are, from 0 to 1, if one can be a slip of the pen for the other."""
LONGEST_KEY = 100
"""The most characters of a key; a longer one is cut."""

DEMONYMS = {
    "american": "america", "australian": "australia", "austrian": "austria", "belgian": "belgium",
    "brazilian": "brazil", "british": "britain", "canadian": "canada", "chinese": "china", "danish": "denmark",
    "egyptian": "egypt", "english": "england", "european": "europe", "finnish": "finland", "french": "france",
    "german": "germany", "greek": "greece", "indian": "india", "irish": "ireland", "israeli": "israel",
    "italian": "italy", "japanese": "japan", "korean": "korea", "mexican": "mexico", "dutch": "netherland",
    "norwegian": "norway", "polish": "poland", "portuguese": "portugal", "russian": "russia", "scottish": "scotland",
    "spanish": "spain", "swedish": "sweden", "swiss": "switzerland", "turkish": "turkey", "ukrainian": "ukraine",
    "welsh": "wale",
}  # fmt: skip
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
    """Normalise letters, width (NFKC), quotes, articles, plurals and peoples, never numbers; may be empty."""
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


@dataclass(frozen=True, slots=True)
class FactGraph:
    """Facts by number, each with the forms of its keys, and for each form the ways to write it and its facts.

    `written` counts how often a key is written in each way, so it is the map of aliases too. `labels` has the most
    frequent way to write each key that is not an alias. Ties go to the first in the order of characters.
    """

    facts: tuple[tuple[str, ...], ...]
    written: Mapping[str, Mapping[str, int]]
    holders: Mapping[str, tuple[int, ...]]
    labels: Mapping[str, str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        labels = {
            key: min(ways, key=lambda way: (fold_key(way) != key, -ways[way], way))
            for key, ways in self.written.items()
        }
        object.__setattr__(self, "labels", labels)


def make_graph(facts: Sequence[Sequence[str]], aliases: Mapping[str, str] | None = None) -> FactGraph:
    """Make the graph of facts, given as keys; `aliases` names an equal key, unless its numbers differ."""
    same = {
        normalise_key(alias): normalise_key(key)
        for alias, key in (aliases or {}).items()
        if find_numbers(alias) == find_numbers(key)
    }
    forms = []
    written: dict[str, Counter[str]] = {}
    holders: dict[str, list[int]] = {}
    for number, keys in enumerate(facts):
        own: dict[str, None] = {}
        for key in keys:
            form = normalise_key(key)
            form = same.get(form, form)
            if form:
                own[form] = None
                written.setdefault(form, Counter())[tidy_key(key)] += 1
        for form in own:
            holders.setdefault(form, []).append(number)
        forms.append(tuple(own))
    return FactGraph(tuple(forms), written, {form: tuple(numbers) for form, numbers in holders.items()})


def join_graphs(graphs: Sequence[FactGraph]) -> FactGraph:
    """Join graphs into one. Its facts are those of the first graph, then those of the second, and so on."""
    facts: list[tuple[str, ...]] = []
    written: dict[str, Counter[str]] = {}
    holders: dict[str, list[int]] = {}
    for graph in graphs:
        for form, ways in graph.written.items():
            written.setdefault(form, Counter()).update(ways)
            holders.setdefault(form, []).extend(len(facts) + number for number in graph.holders[form])
        facts += graph.facts
    return FactGraph(tuple(facts), written, {form: tuple(numbers) for form, numbers in holders.items()})


def find_neighbours(graph: FactGraph, key: str) -> dict[str, int]:
    """Neighbours of a key with the facts that hold both, most first, then by label. `KeyError` if it is unknown."""
    weights = Counter(other for number in graph.holders[key] for other in graph.facts[number] if other != key)
    return dict(sorted(weights.items(), key=lambda pair: (-pair[1], graph.labels[pair[0]])))


def find_key(graph: FactGraph, written: str, among: Collection[str]) -> str | None:
    """Find the key of `among` that a model means: the same in writing, or in form, or but for a slip of the pen."""
    text, form = tidy_key(written), normalise_key(written)
    for key in among:
        if text in graph.written[key]:
            return key
    if form in among:
        return form
    return next((key for key in among if is_slip(text, graph.labels[key])), None)


FEWEST_CHARACTERS = 12
MOST_KEYS = 10
"""The most key elements of one fact. Names come first, then numbers, then other words."""
CONTENT_WORDS = 3
"""How many words other than names are key elements of a fact: those of the highest TF-IDF."""
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

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W_][\w'\u2019&-]*")
_LINKS = frozenset(("of", "the", "de", "van", "von"))


class Fact(NamedTuple):
    """A fact: the stretch `text[start:end]` of a document, and its key elements as written there."""

    start: int
    end: int
    keys: tuple[str, ...]


def make_facts(document: Document) -> tuple[Fact, ...]:
    """Make a document's facts in order; keys are names, numbers with nouns, and words of the highest TF-IDF."""
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

    The first word of a sentence is not a name by itself if it is in `lower`: the document writes it in lower case too.
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
