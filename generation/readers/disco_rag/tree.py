"""The rhetorical tree of a chunk: strictly binary, grown by rules or read from a reply (`tree_reply`).

The spans of a tree are offsets into the text of its chunk. Its leaves are the elementary units, and hold all its words.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from keystone.generation.readers.disco_rag.relations import INTRA, name_relation
from keystone.generation.readers.disco_rag.replies import Found
from keystone.indexing.structures.blocks import sentence_spans
from keystone.indexing.structures.discourse import BETWEEN_PARAGRAPHS, BETWEEN_SENTENCES, Leaf, binary_tree
from keystone.indexing.structures.tree import Node, Tree, children, leaves


def grow_tree(text: str) -> Found[Tree]:
    """Grow the tree of a chunk by rules: its units are sentences, and connectives give relations."""
    found: list[Leaf] = []
    for start, end in sentence_spans(text, 0, len(text)):
        new_line = bool(found) and "\n" in text[found[-1].end : start]
        found.append(Leaf(start, end, BETWEEN_PARAGRAPHS if new_line else BETWEEN_SENTENCES))
    tree = binary_tree("", found, text)
    nodes = [
        replace(node, relation=name_relation(node.relation, INTRA).label) if node.relation else node
        for node in tree.nodes
    ]
    return Found(Tree("", tuple(nodes)), ["by rules"])


def show_tree(tree: Tree) -> str:
    """Show a tree by the numbers of its units, such as `SEQUENCE(N:1, N:CAUSE(N:2, S:3))`."""
    numbers = {leaf.id: number for number, leaf in enumerate(leaves(tree), 1)}
    parts: list[str] = []
    waiting: list[Node | str] = [tree.nodes[0]]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            parts.append(item)
        elif item.id in numbers:
            parts.append(str(numbers[item.id]))
        else:
            left, right = children(tree, item.id)
            waiting += [")", right, f", {item.nuclearity[1]}:", left, f"{item.relation}({item.nuclearity[0]}:"]
    return "".join(parts)


def show_units(tree: Tree, text: str) -> str:
    """Show a chunk on one line, each unit of its tree after the unit's number."""
    return " ".join(
        f"[{number}] {' '.join(text[leaf.start : leaf.end].split())}" for number, leaf in enumerate(leaves(tree), 1)
    )


def shuffle_trees(trees: Sequence[Tree], seed: int) -> list[Tree]:
    """Shuffle the relations and nuclei among all joints of the trees (Disco-RAG, figure 4a)."""
    labels = [(node.relation, node.nuclearity) for tree in trees for node in tree.nodes if node.kind == "relation"]
    Random(seed).shuffle(labels)
    left = iter(labels)
    shuffled = []
    for tree in trees:
        nodes = []
        for node in tree.nodes:
            relation, nuclearity = next(left) if node.kind == "relation" else ("", "")
            nodes.append(replace(node, relation=relation, nuclearity=nuclearity))
        shuffled.append(Tree(tree.doc_id, tuple(nodes)))
    return shuffled
