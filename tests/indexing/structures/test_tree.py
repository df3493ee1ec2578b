"""Trees: one array in pre-order, and functions that walk it without recursion."""

from collections.abc import Callable

import pytest

from keystone.indexing.structures.tree import (
    Node,
    Tree,
    ancestors,
    children,
    depths,
    leaves,
    render,
    siblings,
    subtree,
)

TEXT = "Six Flags Lead. The park opened in 1971. It has records."


def heading(id: int, parent: int | None, label: str) -> Node:
    return Node(id, parent, "heading", 0, 0, 1, label)


def content(id: int, parent: int, start: int, end: int) -> Node:
    return Node(id, parent, "content", start, end)


PARK = Tree(
    "d",
    (
        heading(-1, None, "Six Flags"),
        heading(0, -1, "Introduction"),
        content(1, 0, 10, 15),
        heading(3, -1, "History"),
        heading(18, 3, "2000s"),
        content(19, 18, 16, 40),
        content(20, 19, 41, 56),
    ),
)
"""Ids are sparse and begin with -1, as in Table 16 of RDR2; content 20 is an item below content 19."""


def ids(nodes: tuple[Node, ...]) -> list[int]:
    return [node.id for node in nodes]


@pytest.mark.parametrize(
    ("walk", "id", "expected"),
    [
        pytest.param(children, -1, [0, 3], id="children skip grandchildren"),
        pytest.param(children, 20, [], id="a leaf has no children"),
        pytest.param(ancestors, 20, [19, 18, 3, -1], id="ancestors from near to far"),
        pytest.param(ancestors, -1, [], id="the root has no ancestors"),
        pytest.param(siblings, 3, [0], id="siblings without the node"),
        pytest.param(siblings, -1, [], id="the root has no siblings"),
        pytest.param(subtree, 3, [3, 18, 19, 20], id="a subtree begins with its node"),
        pytest.param(leaves, -1, [1, 20], id="leaves in text order"),
        pytest.param(leaves, 1, [1], id="a leaf is its own leaf"),
    ],
)
def test_walks(walk: Callable[[Tree, int], tuple[Node, ...]], id: int, expected: list[int]) -> None:
    assert ids(walk(PARK, id)) == expected


def test_leaves_of_the_whole_tree() -> None:
    assert leaves(PARK) == leaves(PARK, -1)


def test_depths() -> None:
    assert depths(PARK) == {-1: 0, 0: 1, 1: 2, 3: 1, 18: 2, 19: 3, 20: 4}


@pytest.mark.parametrize("id", [-2, 2, 21])
def test_an_unknown_id_is_a_key_error(id: int) -> None:
    with pytest.raises(KeyError):
        PARK[id]


def test_render() -> None:
    assert render(PARK, TEXT, shown={-1, 0, 3, 18}) == (
        "-1: Six Flags\n\t0: ==Introduction==\n\t3: ==History==\n\t\t18: ===2000s==="
    )
    assert render(PARK, TEXT).count("\n") == len(PARK) - 1


def test_a_rendered_text_stays_on_its_line() -> None:
    tree = Tree("d", (heading(0, None, "T"), content(1, 0, 0, 9)))
    assert render(tree, "a\n2: b\r\nc") == "0: T\n\t1: a 2: b c"


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        pytest.param((), "at least one node", id="no node"),
        pytest.param((heading(0, 1, ""),), "node 0: its parent 1", id="a root with a parent"),
        pytest.param((heading(0, None, ""), heading(1, None, "")), "node 1: its parent None", id="two roots"),
        pytest.param((heading(0, None, ""), heading(0, 0, "")), "node 0 follows node 0", id="an id twice"),
        pytest.param(
            (heading(0, None, ""), content(2, 0, 0, 1), content(1, 0, 1, 2)), "ids must rise", id="falling ids"
        ),
        pytest.param(
            (heading(0, None, ""), heading(1, 0, ""), heading(2, 0, ""), heading(3, 1, "")),
            "node 3: its parent 1 is not on the path",
            id="not in pre-order",
        ),
        pytest.param(
            (heading(0, None, ""), content(1, 0, 0, 5), content(2, 0, 4, 6)),
            "node 2: its span",
            id="overlapping content",
        ),
        pytest.param((Node(0, None, "content", 3, 2),), "3-2 is not a span", id="a span that ends before it begins"),
        pytest.param((Node(0, None, "leaf", 0, 0),), "unknown kind 'leaf'", id="an unknown kind"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_tree(nodes: tuple[Node, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Tree("d", nodes)


def test_ten_thousand_levels() -> None:
    levels = 10_000
    tree = Tree("d", tuple(heading(at, at - 1 if at else None, "x") for at in range(levels)))
    assert len(ancestors(tree, levels - 1)) == depths(tree)[levels - 1] == levels - 1
    assert ids(leaves(tree)) == [levels - 1]
    assert len(subtree(tree, 1)) == levels - 1
    assert len(render(tree, "")) < levels * 140
