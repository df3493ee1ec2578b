"""What files of discourse trees have in common: units that are joined two at a time, and the tree of the last one."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from keystone.indexing.structures.tree import Node, Nuclearity, Tree


class TreeText(NamedTuple):
    """A tree and the text that its spans point into."""

    tree: Tree
    text: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unit:
    """One leaf of the text, or two neighbouring units under a relation. `first` and `last` count leaves from 0."""

    first: int
    last: int
    halves: "tuple[Unit, Unit] | None" = None
    relation: str = ""
    nuclearity: Nuclearity = ""


def join(left: Unit, right: Unit, relation: str, nuclearity: Nuclearity) -> Unit:
    """Two units as one. `ValueError` if other text lies between them."""
    if right.first != left.last + 1:
        raise ValueError(
            f"{relation}: text units {left.first + 1} to {left.last + 1} and {right.first + 1} to {right.last + 1} "
            "are not neighbours"
        )
    return Unit(left.first, right.last, (left, right), relation, nuclearity)


def join_equals(units: Sequence[Unit], relation: str) -> Unit:
    """Several nuclei of one relation as one unit, the last two joined first."""
    whole = units[-1]
    for unit in reversed(units[:-1]):
        whole = join(unit, whole, relation, "NN")
    return whole


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


def tree_over(doc_id: str, whole: Unit, spans: Sequence[tuple[int, int]]) -> Tree:
    """The tree over leaves with these spans, (start, end), one for each leaf of the unit."""
    nodes: list[Node] = []
    waiting: list[tuple[Unit, int | None]] = [(whole, None)]
    while waiting:
        unit, parent = waiting.pop()
        start, end, id = spans[unit.first][0], spans[unit.last][1], len(nodes)
        if unit.halves is None:
            nodes.append(Node(id, parent, "content", start, end))
        else:
            nodes.append(Node(id, parent, "relation", start, end, 0, "", unit.relation, unit.nuclearity))
            waiting += [(unit.halves[1], id), (unit.halves[0], id)]
    return Tree(doc_id, tuple(nodes))


def as_discourse(tree: Tree, text: str) -> TreeText:
    """A section tree as a binary tree over its headings and its content; another tree as it is.

    A heading is a unit of text and the satellite of all below it ("organization"). Items of a list elaborate on the
    content that they stand below. The rest are equals ("joint").
    """
    if all(node.kind != "heading" for node in tree.nodes):
        return TreeText(tree, text)
    own = [node.label if node.kind == "heading" else text[node.start : node.end] for node in tree.nodes]
    numbers = [0]
    for words in own:
        numbers.append(numbers[-1] + bool(words))
    below: dict[int | None, list[Unit]] = defaultdict(list)
    for at in range(len(own) - 1, -1, -1):
        node, parts = tree.nodes[at], below.pop(tree.nodes[at].id, [])[::-1]
        body = [join_equals(parts, "joint")] if parts else []
        head = [Unit(numbers[at], numbers[at])] if own[at] or not (parts or node.parent is not None) else []
        if head and body:
            link: tuple[str, Nuclearity] = ("organization", "SN") if node.kind == "heading" else ("elaboration", "NS")
            below[node.parent].append(join(head[0], body[0], *link))
        else:
            below[node.parent] += head or body
    return tree_of(tree.doc_id, below[None][0], [words for words in own if words] or [""])


def check_binary(tree: Tree) -> None:
    """`ValueError` unless the tree is a discourse tree: each relation has a name, a nuclearity and two children."""
    counts = dict.fromkeys(tree.ids, 0)
    for node in tree.nodes:
        if node.parent is not None:
            counts[node.parent] += 1
    for node in tree.nodes:
        whole = node.relation not in ("", SPAN) and bool(node.nuclearity)
        if node.kind == "heading" or counts[node.id] != 2 * (node.kind == "relation"):
            raise ValueError(f"node {node.id} is no part of a binary discourse tree")
        if node.kind == "relation" and not whole:
            raise ValueError(f"node {node.id}: relation {node.relation!r} with nuclearity {node.nuclearity!r}")


SPAN = "span"
"""The name that files give to the link from a nucleus to the unit it heads; it is no relation."""
