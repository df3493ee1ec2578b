"""The part of a section tree that the router is shown (RDR2, section 3.2 and Algorithm 1). All functions are pure."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from keystone.generation.context.tokens import clip, count_tokens
from keystone.indexing.structures.tree import (
    DEEPEST_INDENT,
    INDENT,
    Tree,
    ancestors,
    children,
    depths,
    position,
    render,
    siblings,
    subtree,
)
from keystone.indexing.types import Span

HEADING_TOKENS = 40
"""The most tokens of the line of a heading."""


@dataclass(frozen=True, slots=True)
class View:
    """A rendered part of a tree, and the text of each line by the id of its node: content, and headings."""

    text: str
    content: dict[int, str]
    headings: dict[int, str]


def find_hit_nodes(tree: Tree, span: Span) -> list[int]:
    """Find the content that overlaps a stretch of the document, in order."""
    return [
        node.id for node in tree.nodes if node.kind == "content" and node.start < span.end and span.start < node.end
    ]


def light(tree: Tree, hits: Sequence[int]) -> set[int]:
    """Find the content that becomes visible around some content (Algorithm 1).

    This is the content beside it with all content below, and the content above it up to the first heading.
    """
    lit: set[int] = set()
    for hit in hits:
        for node in (tree[hit], *siblings(tree, hit)):
            if node.kind == "content":
                lit.update(_list_content(tree, node.id))
        for node in ancestors(tree, hit):
            if node.kind == "heading":
                break
            lit.add(node.id)
    return lit


def list_section(tree: Tree, heading: int) -> list[int]:
    """List the content that stands directly below a heading, and the content below that, in order."""
    return [id for child in children(tree, heading) if child.kind == "content" for id in _list_content(tree, child.id)]


def order_by_nearness(visible: Collection[int], hits: Sequence[int]) -> list[int]:
    """Put visible content in the order of its distance from the hits: the hits first, ties in the order of the text."""
    distance = {id: min((abs(id - hit) for hit in hits), default=0) for id in visible}
    return sorted(sorted(visible), key=distance.__getitem__)


def flatten(tree: Tree) -> Tree:
    """Put all content directly below the title, without the other headings and without lists in lists."""
    root = tree.nodes[0]
    content = [replace(node, parent=root.id, level=0) for node in tree.nodes[1:] if node.kind == "content"]
    return Tree(tree.doc_id, (root, *content))


def show(tree: Tree, text: str, wanted: Sequence[int], limit: int) -> View:
    """Render the headings and the wanted content within `limit` tokens, one line a node.

    The first of the content always has a line, which is cut to half of the limit. After it come the other content, in
    the order of `wanted`, and the headings above it; content leaves a quarter of the limit to headings. Then come the
    headings beside those, the headings of the first level, and the others. If children of a node are left out, a line
    such as `… (3 more)` stands for them. It names none of them.
    """
    content = set(wanted)
    order = [node.id for node in tree.nodes if node.kind == "heading" or node.id in content]
    rows = render(tree, text, set(order)).split("\n")
    lines = {
        id: clip(row, limit // 2 if id in content else HEADING_TOKENS) for id, row in zip(order, rows, strict=True)
    }
    below = Counter(tree[id].parent for id in order)
    depth = depths(tree)
    left = limit
    shown: set[int] = set()
    for id in _rank(tree, wanted):
        cost = count_tokens(f"{lines[id]}\n")
        if below[id]:
            cost += count_tokens(f"{_say_more(depth[id], below[id])}\n")
        if cost <= left - (limit // 4 if id in content else 0):
            shown.add(id)
            left -= cost
    found = [(position(tree, id), 0, lines[id]) for id in shown]
    below.subtract(tree[id].parent for id in shown)
    for id in shown:
        if below[id]:
            at = position(tree, id)
            found.append((tree.ends[at] - 1, len(tree) - at, _say_more(depth[id], below[id])))
    said = {id: lines[id].split(": ", 1)[1] for id in order if id in shown}
    return View(
        "\n".join(line for _, _, line in sorted(found)),
        {id: line for id, line in said.items() if id in content},
        {id: line for id, line in said.items() if id not in content},
    )


def _rank(tree: Tree, wanted: Sequence[int]) -> list[int]:
    """Rank the nodes of a view by their worth, each once: see `show`."""
    path = {id: [node.id for node in ancestors(tree, id) if node.kind == "heading"] for id in wanted}
    open_nodes = {above for own in path.values() for above in own}
    headings = sorted(
        (node for node in tree.nodes if node.kind == "heading"),
        key=lambda node: (node.parent not in open_nodes, node.parent != tree.ids[0]),
    )
    ranked = [*(id for own in wanted for id in (own, *path[own])), *(node.id for node in headings)]
    return list(dict.fromkeys(ranked))


def _list_content(tree: Tree, id: int) -> list[int]:
    return [node.id for node in subtree(tree, id) if node.kind == "content"]


def _say_more(depth: int, number: int) -> str:
    """Say how many children of a node at this depth are left out."""
    return f"{INDENT * min(depth + 1, DEEPEST_INDENT)}… ({number} more)"
