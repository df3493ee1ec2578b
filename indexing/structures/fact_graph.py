"""The graph of key elements: two keys are neighbours if a fact holds both (GraphReader, section 3.2).

The paper links two keys if each appears in the facts of the other. Its example (Figures 21 and 23) shows that this is
co-occurrence after normalisation. So the paper does not search for one key in the text of the other's facts.

The paper normalises keys as InsTag does, and gives no parameters. Here rules normalise them, so that a key has the same
form in every document. Keys with different numbers never have the same form.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

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


@dataclass(frozen=True, slots=True)
class FactGraph:
    """Facts by number, each with the forms of its keys, and for each form the ways to write it and its facts.

    `written` counts how often a key is written in each way, so it is the map of aliases too. `labels` has the most
    frequent way to write each key that is no alias. Ties go to the first in the order of characters.
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
    """Make the graph of facts, each given as its keys as written.

    `aliases` names for a key another one that means the same. An alias with different numbers is ignored.
    """
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
    """Find the neighbours of a key with the weight of each edge: the number of facts that hold both keys.

    The heaviest edge comes first. Ties are in the order of labels. `KeyError` for an unknown key.
    """
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
