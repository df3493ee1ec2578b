"""A tree over the text of a document, as an array of nodes in pre-order; all functions are pure and none recurses."""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

Kind = Literal["heading", "content", "relation"]
"""A heading or the document's title; text; or the joint of two parts of a discourse."""

Nuclearity = Literal["", "NS", "SN", "NN"]
"""Of the two children of a relation, N is a nucleus and S is its satellite; empty if the node is not a relation."""

INDENT = "\t"
DEEPEST_INDENT = 40
"""The most tabs in front of a rendered line; deeper nodes get as many."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node; `start` and `end` are character offsets into `Document.text`.

    The span of a heading is its own text, empty where the text does not hold it. The span of content is its own text,
    without the content below it. The span of a relation reaches over all its leaves. `parent` is an id, None for the
    root. `level` is the level of a heading (root 0) or the depth of an item within lists. `cue` is the connective that
    gave the relation; it is empty if the relation is a default.
    """

    id: int
    parent: int | None
    kind: Kind
    start: int
    end: int
    level: int = 0
    label: str = ""
    relation: str = ""
    nuclearity: Nuclearity = ""
    cue: str = ""


@dataclass(frozen=True, slots=True)
class Tree:
    """The nodes in pre-order: ids rise, each parent comes before its children, spans of content rise and are disjoint.

    `ValueError` if the nodes are not such a tree. All functions below take ids of nodes; `KeyError` for an unknown id.
    """

    doc_id: str
    nodes: tuple[Node, ...]
    ids: tuple[int, ...] = field(init=False, repr=False, compare=False)
    ends: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """For each position, the position after the last node of its subtree."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", tuple(node.id for node in self.nodes))
        object.__setattr__(self, "ends", _subtree_ends(self.nodes))

    def __getitem__(self, id: int) -> Node:
        return self.nodes[position(self, id)]

    def __len__(self) -> int:
        return len(self.nodes)


def position(tree: Tree, id: int) -> int:
    """The position of a node in `tree.nodes`."""
    found = bisect_left(tree.ids, id)
    if found == len(tree.ids) or tree.ids[found] != id:
        raise KeyError(id)
    return found


def subtree(tree: Tree, id: int) -> tuple[Node, ...]:
    """The node and all below it, in pre-order."""
    start = position(tree, id)
    return tree.nodes[start : tree.ends[start]]


def children(tree: Tree, id: int) -> tuple[Node, ...]:
    """The children of a node, in text order."""
    at = position(tree, id)
    found, child = [], at + 1
    while child < tree.ends[at]:
        found.append(tree.nodes[child])
        child = tree.ends[child]
    return tuple(found)


def ancestors(tree: Tree, id: int) -> tuple[Node, ...]:
    """The parent of a node, its parent, and so on to the root."""
    found = []
    parent = tree[id].parent
    while parent is not None:
        node = tree[parent]
        found.append(node)
        parent = node.parent
    return tuple(found)


def siblings(tree: Tree, id: int) -> tuple[Node, ...]:
    """The other children of a node's parent, in text order."""
    parent = tree[id].parent
    return () if parent is None else tuple(node for node in children(tree, parent) if node.id != id)


def leaves(tree: Tree, id: int | None = None) -> tuple[Node, ...]:
    """The nodes without children below a node (below the root if `id` is None), in text order."""
    start, end = 0, len(tree)
    if id is not None:
        start = position(tree, id)
        end = tree.ends[start]
    return tuple(tree.nodes[at] for at in range(start, end) if tree.ends[at] == at + 1)


def depths(tree: Tree) -> dict[int, int]:
    """The number of steps from the root to each node, by id."""
    found: dict[int, int] = {}
    for node in tree.nodes:
        found[node.id] = 0 if node.parent is None else found[node.parent] + 1
    return found


def render(tree: Tree, text: str, shown: Collection[int] | None = None) -> str:
    """One line per node in pre-order, `id: text` after tabs, for `shown` or all nodes: RDR2's tree (Table 16)."""
    depth = depths(tree)
    return "\n".join(
        f"{INDENT * min(depth[node.id], DEEPEST_INDENT)}{node.id}: {_line(node, text, depth[node.id])}"
        for node in tree.nodes
        if shown is None or node.id in shown
    )


def _line(node: Node, text: str, depth: int) -> str:
    if node.kind == "content":
        return " ".join(text[node.start : node.end].split())
    if node.kind == "relation":
        return f"{node.relation} {node.nuclearity}"
    marks = "=" * min(depth + 1, DEEPEST_INDENT) if depth else ""
    return f"{marks}{' '.join(node.label.split())}{marks}"


def _subtree_ends(nodes: Sequence[Node]) -> tuple[int, ...]:
    """The ends of all subtrees; `ValueError` if the nodes are not a tree in pre-order."""
    if not nodes:
        raise ValueError("a tree has at least one node")
    ends = [len(nodes)] * len(nodes)
    path: list[int] = []
    last, covered = nodes[0].id - 1, 0
    for at, node in enumerate(nodes):
        if node.id <= last:
            raise ValueError(f"node {node.id} follows node {last}: ids must rise")
        last = node.id
        while path and nodes[path[-1]].id != node.parent:
            ends[path.pop()] = at
        if bool(path) == (at == 0) or (at == 0 and node.parent is not None):
            raise ValueError(f"node {node.id}: its parent {node.parent} is not on the path before it")
        path.append(at)
        _check_values(node)
        if node.kind == "content":
            if node.start < covered:
                raise ValueError(f"node {node.id}: its span {node.start}-{node.end} begins before {covered}")
            covered = node.end
    return tuple(ends)


def _check_values(node: Node) -> None:
    if node.kind not in get_args(Kind) or node.nuclearity not in get_args(Nuclearity):
        raise ValueError(f"node {node.id}: unknown kind {node.kind!r} or nuclearity {node.nuclearity!r}")
    if not 0 <= node.start <= node.end:
        raise ValueError(f"node {node.id}: {node.start}-{node.end} is not a span")
