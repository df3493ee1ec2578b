"""Discourse trees without a model: strictly binary, right-branching within sentences, paragraphs, sections, document.

Against the gold trees of GUM this shape is far better than its labels (`benchmarks/discourse_trees.py`). A label comes
from a connective, and `Node.cue` names it; without a connective it is a default.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from keystone.indexing.structures.blocks import sentence_spans
from keystone.indexing.structures.connectives import HEAD_LENGTH, Signal, signal_across, signal_within
from keystone.indexing.structures.tree import Node, Tree, children, depths

IN_SENTENCE, BETWEEN_SENTENCES, BETWEEN_PARAGRAPHS, AFTER_HEADING, BEFORE_HEADING = range(5)
"""Strengths of the gap between two neighbouring leaves; sections of a higher level add 2 for each level."""

MOST_SENTENCES, FEWEST_SENTENCES = 5, 2
"""Sentences of a leaf (DiscoRAG, section 3.1); a section of one sentence is a leaf too."""

LONGEST_CHAIN = 12
"""Units of one level that stand in one chain; more get a balanced layer above them, so that no tree is a list."""

MOST_RELATIONS = 7
"""Lines that `relations_from` gives to an agent (DiscoRAG, Listing 1)."""


class Leaf(NamedTuple):
    """A unit of text, (start, end), and the strength of the gap before it; `heading` says that it is one."""

    start: int
    end: int
    gap: int
    heading: bool = False


class Related(NamedTuple):
    """A node that a relation leads to, and its depth in the tree."""

    relation: str
    id: int
    depth: int


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbouring units with gaps of one strength between them, over the leaves `first` to `last`."""

    first: int
    last: int
    gap: int
    units: tuple["_Group", ...] = ()


def discourse_tree(sections: Tree, text: str) -> Tree:
    """The discourse tree of a document, from its section tree.

    A leaf holds 2 to 5 sentences of one section; the first leaf of a section begins with its headings. A document
    without content is one empty leaf.
    """
    return binary_tree(sections.doc_id, _leaves(sections, text) or [Leaf(0, 0, 0)], text)


def relations_from(tree: Tree, id: int, most: int = MOST_RELATIONS) -> list[Related]:
    """The sibling of a node, the sibling of its parent and so on, nearest first, with the relation that joins them.

    This is `RelationsFrom` of DiscoRAG; its Listing 1 fixes the order. `KeyError` for an unknown id.
    """
    depth = depths(tree)
    found: list[Related] = []
    node = tree[id]
    while node.parent is not None and len(found) < most:
        parent = tree[node.parent]
        found += [
            Related(parent.relation, other.id, depth[other.id])
            for other in children(tree, parent.id)
            if other.id != node.id
        ]
        node = parent
    return found[:most]


def binary_tree(doc_id: str, leaves: Sequence[Leaf], text: str, longest_chain: int = LONGEST_CHAIN) -> Tree:
    """The strictly binary tree over leaves: stronger gaps split first, equal ones from left to right."""
    nodes: list[Node] = []
    waiting: list[tuple[_Group, int | None]] = [(_grouped(leaves), None)]
    while waiting:
        group, parent = waiting.pop()
        start, end = leaves[group.first].start, leaves[group.last].end
        if not group.units:
            nodes.append(Node(len(nodes), parent, "content", start, end))
            continue
        left, right = _halves(group, longest_chain)
        waiting += [(right, len(nodes)), (left, len(nodes))]
        found = _signal(leaves, text, left, right)
        nodes.append(
            Node(len(nodes), parent, "relation", start, end, 0, "", found.relation, found.nuclearity, found.cue)
        )
    return Tree(doc_id, tuple(nodes))


def _grouped(leaves: Sequence[Leaf]) -> _Group:
    """The leaves grouped by the strengths of their gaps; runs in linear time."""
    open_groups: list[tuple[int, list[_Group]]] = []
    for at, _ in enumerate(leaves):
        unit = _Group(at, at, 0)
        gap = leaves[at + 1].gap if at + 1 < len(leaves) else None
        while open_groups and (gap is None or open_groups[-1][0] < gap):
            strength, units = open_groups.pop()
            unit = _Group(units[0].first, unit.last, strength, (*units, unit))
        if gap is None:
            return unit
        if open_groups and open_groups[-1][0] == gap:
            open_groups[-1][1].append(unit)
        else:
            open_groups.append((gap, [unit]))
    raise ValueError("a tree has at least one leaf")


def _halves(group: _Group, longest_chain: int) -> tuple[_Group, _Group]:
    """The first unit and the rest; too many units are first cut into chains of equal length."""
    units = group.units
    while len(units) > longest_chain:
        chains = -(-len(units) // longest_chain)
        cuts = [len(units) * number // chains for number in range(chains + 1)]
        units = tuple(_group(units[cuts[at] : cuts[at + 1]], group.gap) for at in range(chains))
    return units[0], _group(units[1:], group.gap)


def _group(units: tuple[_Group, ...], gap: int) -> _Group:
    return units[0] if len(units) == 1 else _Group(units[0].first, units[-1].last, gap, units)


def _signal(leaves: Sequence[Leaf], text: str, left: _Group, right: _Group) -> Signal:
    """The relation between two units: by a heading, by a connective, or else the default."""
    if leaves[left.first].heading and left.first == left.last:
        return Signal("organization", "SN")
    gap, start = leaves[right.first].gap, leaves[right.first].start
    head = text[start : start + HEAD_LENGTH]
    if gap == IN_SENTENCE:
        found = signal_within(text[leaves[left.first].start : leaves[left.last].end], head)
    else:
        found = signal_across(head)
    return found or (Signal("elaboration", "NS") if gap < BETWEEN_PARAGRAPHS else Signal("joint", "NN"))


def _leaves(sections: Tree, text: str) -> list[Leaf]:
    deepest = max(node.level for node in sections.nodes if node.kind == "heading")
    found: list[Leaf] = []
    paragraphs: list[list[tuple[int, int]]] = []
    headings: list[Node] = []
    for node in [*sections.nodes[1:], None]:
        if node is not None and node.kind == "content":
            paragraphs.append(sentence_spans(text, node.start, node.end))
        elif paragraphs:
            highest = min((heading.level for heading in headings), default=deepest)
            found += _section_leaves(paragraphs, headings, BEFORE_HEADING + 2 * (deepest - highest))
            paragraphs, headings = [], []
        if node is not None and node.kind == "heading":
            headings.append(node)
    return found


def _section_leaves(paragraphs: list[list[tuple[int, int]]], headings: Sequence[Node], gap: int) -> list[Leaf]:
    """The leaves of one section; paragraphs of one sentence join the next one, or at the end the one before."""
    chunks: list[list[tuple[int, int]]] = []
    for sentences in paragraphs:
        if chunks and len(chunks[-1]) < FEWEST_SENTENCES:
            chunks[-1] += sentences
        else:
            chunks.append(list(sentences))
    if len(chunks) > 1 and len(chunks[-1]) < FEWEST_SENTENCES:
        last = chunks.pop()
        chunks[-1] += last
    found = []
    for chunk in chunks:
        parts = -(-len(chunk) // MOST_SENTENCES)
        cuts = [len(chunk) * number // parts for number in range(parts + 1)]
        for at in range(parts):
            strength = BETWEEN_SENTENCES if at else BETWEEN_PARAGRAPHS
            found.append(Leaf(chunk[cuts[at]][0], chunk[cuts[at + 1] - 1][1], strength))
    first = found[0]
    start = min((heading.start for heading in headings if heading.end > heading.start), default=first.start)
    found[0] = Leaf(min(start, first.start), first.end, gap)
    return found
