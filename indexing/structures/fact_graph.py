"""The graph of key elements: two keys are neighbours if a fact holds both (GraphReader, section 3.2).

The paper links two keys if each appears in the facts of the other. Its example (Figures 21 and 23) shows that this is
co-occurrence after normalisation. So the paper does not search for one key in the text of the other's facts.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from keystone.indexing.structures.keys import find_numbers, fold_key, is_slip, normalise_key, tidy_key


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
