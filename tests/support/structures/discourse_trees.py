"""Strictly binary trees drawn as nested tuples, and the tree of DiscoRAG's Listing 1 with its text and vectors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keystone.generation.readers.discorag.tools import Discourse
from keystone.indexing.embedder import Vectors
from keystone.indexing.structures.tree import Node, Nuclearity, Tree, leaves
from keystone.indexing.types import Document

Sketch = tuple[str, Any, Any] | None
"""A relation with its two parts, or None for a leaf."""


def check_binary(tree: Tree) -> None:
    """`ValueError` unless the tree is a discourse tree: each relation has a name, a nuclearity and two children."""
    counts = dict.fromkeys(tree.ids, 0)
    for node in tree.nodes:
        if node.parent is not None:
            counts[node.parent] += 1
    for node in tree.nodes:
        whole = node.relation != "" and bool(node.nuclearity)
        if node.kind == "heading" or counts[node.id] != 2 * (node.kind == "relation"):
            raise ValueError(f"node {node.id} is no part of a binary discourse tree")
        if node.kind == "relation" and not whole:
            raise ValueError(f"node {node.id}: relation {node.relation!r} with nuclearity {node.nuclearity!r}")


def draw_chain(count: int) -> Sketch:
    """A chain of `count` leaves that branches to the right."""
    found: Sketch = None
    for _ in range(count - 1):
        found = ("List", None, found)
    return found


def number_nodes(sketch: Sketch, lengths: Mapping[int, int] | None = None, nuclearity: Nuclearity = "NN") -> Tree:
    """Number the nodes of a sketch in pre-order. A leaf has one character, or its length, and a space after it."""
    nodes: list[Node] = []
    waiting: list[tuple[Sketch, int | None]] = [(sketch, None)]
    at = 0
    while waiting:
        part, parent = waiting.pop()
        id = len(nodes)
        if part is None:
            end = at + (lengths or {}).get(id, 1)
            nodes.append(Node(id, parent, "content", at, end))
            at = end + 1
        else:
            nodes.append(Node(id, parent, "relation", at, at, 0, "", part[0], nuclearity))
            waiting += [(part[2], id), (part[1], id)]
    return Tree("d", tuple(nodes))


def make_discourse(
    sketch: Sketch, texts: Mapping[int, str], vectors: Mapping[int, list[float]], nuclearity: Nuclearity = "NN"
) -> Discourse:
    """A document of a sketch. A leaf has its text, or says its number. Its vector has 4 numbers, by default zeros."""
    tree = number_nodes(sketch)
    own = {leaf.id: texts.get(leaf.id, f"Leaf number {leaf.id} says nothing.") for leaf in leaves(tree)}
    tree = number_nodes(sketch, {id: len(text) for id, text in own.items()}, nuclearity)
    rows: Vectors = np.array([vectors.get(id, [0.0] * 4) for id in own], np.float32)
    return Discourse(Document("d", " ".join(own.values())), tree, leaves(tree), rows)


def draw_gurn() -> Sketch:
    """The tree of Listing 1: nodes 0 to 304, with the leaves and the seven relations that its trace shows."""
    first = ("List", None, ("List", draw_chain(5), draw_chain(4)))
    sketch: Sketch = ("Attribution", first, ("Attribution", None, ("Attribution", None, None)))
    rest = ("List", draw_chain(27), draw_chain(105))
    sketch = ("Same-Unit", None, ("Contrast", ("Elaboration", sketch, None), rest))
    sketch = ("Joint", draw_chain(2), sketch)
    for _ in range(4):
        sketch = ("Joint", None, sketch)
    return sketch


GURN_TEXTS = {
    35: "I have lived for many days with the Vasads and with Gurn, their chief, my friend.",
    37: "The girl came near. Is Gurn tall, and has he a bracelet of golden discs?",
    39: "That is Gurn, said Noork. The rulers of his city call him a traitor, and sent him away.",
    40: "I do know, said Sarna. My brother wanted to free the captured slaves.",
    41: "Noork smiled. I am glad that he is your brother, he said.",
    94: "Go to Gurn, and tell him that the Misty Ones can be trapped.",
    97: "Noork sought words for saving the woman of Gurn's father.",
    235: "Sarna came through the door, and he put one of the two robes around her.",
    297: "Gurn laughed. We were trapping the Misty Ones when they crossed the lake.",
    303: "He held Sarna. Now I can live here in peace with you, Gurn.",
}
"""Texts that we wrote for the leaves of the trace, by node."""

GURN_VECTORS = {
    39: [1.0, 0.0, 0.0, 0.0],
    35: [0.9, 0.0, 0.0, 0.0],
    94: [0.8, 0.0, 0.0, 0.0],
    297: [0.7, 0.0, 0.0, 0.0],
    97: [0.6, 0.6, 0.0, 0.0],
    40: [0.0, 1.0, 0.0, 0.0],
    27: [0.0, 0.9, 0.0, 0.0],
    303: [0.0, 0.8, 0.0, 0.0],
    235: [0.0, 0.5, 0.0, 0.0],
}
"""Vectors by which the two searches of the trace find the leaves that it shows."""
