"""Gold discourse trees: the segments and groups of a file of rstWeb, joined two at a time into a binary tree."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from keystone.generation.readers.disco_rag.tree_reply import Unit, join, join_in_row, tree_over
from keystone.indexing.structures.tree import Tree

MULTINUC, SPAN = "multinuc", "span"
"""The type of a group of equal nuclei; the name of the link from a nucleus to the unit it heads."""


class TreeText(NamedTuple):
    """A tree and the text that its spans point into."""

    tree: Tree
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """A segment or a group. `text` is None for a group; `is_multinuc` says that its nuclei are equals."""

    id: str
    parent: str | None
    relation: str
    text: str | None = None
    is_multinuc: bool = False


def tree_of_parts(doc_id: str, parts: Sequence[Part], equal: Collection[str]) -> TreeText:
    """The binary tree of segments and groups; `equal` names the relations between nuclei.

    A group with one child is that child. Several nuclei branch to the right; satellites behind their nucleus are joined
    before those in front of it. `ValueError` names the element if the parts form no tree over the text.
    """
    by_id: dict[str, Part] = {}
    for part in parts:
        if by_id.setdefault(part.id, part) is not part:
            raise ValueError(f"{_name(part)}: its id occurs twice")
    below: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        if part.parent is not None:
            if part.parent not in by_id:
                raise ValueError(f"{_name(part)}: its parent {part.parent!r} does not exist")
            below[part.parent].append(part)
    roots = [part for part in parts if part.parent is None]
    if len(roots) != 1:
        names = ", ".join(_name(part) for part in roots[:3]) or "none"
        raise ValueError(f"expected one element without a parent, found {len(roots)} ({names})")
    texts = [part.text for part in parts if part.text is not None]
    numbers = {part.id: number for number, part in enumerate(part for part in parts if part.text is not None)}
    units: dict[str, Unit] = {}
    order = _from_the_root(roots[0], below)
    if len(order) < len(parts):
        reached = {part.id for part in order}
        lost = next(part for part in parts if part.id not in reached)
        raise ValueError(f"{_name(lost)}: no way leads from the root to it")
    for part in reversed(order):
        try:
            units[part.id] = _unit(part, below[part.id], units, numbers, equal)
        except ValueError as error:
            raise ValueError(f"{_name(part)}: {error}") from None
    return tree_of(doc_id, units[roots[0].id], texts)


def join_satellites(nucleus: Unit, satellites: Sequence[tuple[Unit, str]]) -> Unit:
    """A nucleus and its satellites with their relations: those behind it first, each time the nearest."""
    ordered = sorted(satellites, key=lambda satellite: satellite[0].first)
    for unit, relation in ordered:
        if unit.first > nucleus.first:
            nucleus = join(nucleus, unit, relation, "NS")
    for unit, relation in reversed(ordered):
        if unit.first < nucleus.first:
            nucleus = join(unit, nucleus, relation, "SN")
    return nucleus


def tree_of(doc_id: str, whole: Unit, texts: Sequence[str]) -> TreeText:
    """The tree over the leaves' texts, which one blank separates. `ValueError` if the unit does not hold all leaves."""
    if (whole.first, whole.last) != (0, len(texts) - 1):
        raise ValueError(f"the root holds text units {whole.first + 1} to {whole.last + 1} of {len(texts)}")
    ends: list[int] = []
    starts: list[int] = []
    for text in texts:
        starts.append(ends[-1] + 1 if ends else 0)
        ends.append(starts[-1] + len(text))
    return TreeText(tree_over(doc_id, whole, list(zip(starts, ends, strict=True))), " ".join(texts))


def _name(part: Part) -> str:
    return f"{'group' if part.text is None else 'segment'} {part.id}"


def _from_the_root(root: Part, below: Mapping[str, list[Part]]) -> list[Part]:
    """All parts that can be reached, each before those below it."""
    order, waiting = [], [root]
    while waiting:
        part = waiting.pop()
        order.append(part)
        waiting += below.get(part.id, ())
    return order


def _unit(
    part: Part, below: Iterable[Part], units: Mapping[str, Unit], numbers: Mapping[str, int], equal: Collection[str]
) -> Unit:
    nuclei: list[tuple[Unit, str]] = []
    satellites: list[tuple[Unit, str]] = []
    for child in below:
        is_nucleus = child.relation == SPAN or (part.is_multinuc and child.relation in equal)
        (nuclei if is_nucleus else satellites).append((units[child.id], child.relation))
    nuclei.sort(key=lambda nucleus: nucleus[0].first)
    if part.text is not None:
        if nuclei:
            raise ValueError(f"text unit {nuclei[0][0].first + 1} is its nucleus, but it has text")
        return join_satellites(Unit(numbers[part.id], numbers[part.id]), satellites)
    if not nuclei:
        raise ValueError("it has no nucleus")
    relation = next((relation for _, relation in nuclei if relation != SPAN), "")
    if len(nuclei) > 1 and not relation:
        raise ValueError(f"it has {len(nuclei)} nuclei and no relation between them")
    return join_satellites(join_in_row([unit for unit, _ in nuclei], relation, "NN"), satellites)
