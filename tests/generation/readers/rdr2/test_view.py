"""Views of a section tree: the content that becomes visible around hits, and its lines within a limit."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.context.texts import count_tokens
from keystone.generation.readers.rdr2.view import find_hit_nodes, flatten, light, list_section, order_by_nearness, show
from keystone.indexing.structures.tree import Node, Tree, render
from keystone.indexing.types import Span
from tests.support.structures.outlines import LINE, read_outline

OUTLINE = """
0: Title
\t1: lead
\t2: =A=
\t\t3: a one
\t\t4: a list
\t\t\t5: item
\t\t\t\t6: item of the item
\t\t\t7: next item
\t\t8: a three
\t\t9: ==B==
\t\t\t10: b one
\t11: =C=
\t\t12: ==D==
\t\t\t13: d one
"""


@pytest.mark.parametrize(
    ("hits", "visible"),
    [
        pytest.param([10], {10}, id="alone below its heading"),
        pytest.param([3], {3, 4, 5, 6, 7, 8}, id="content beside it and all below that"),
        pytest.param([1], {1}, id="headings beside it stay closed"),
        pytest.param([6], {6, 5, 4}, id="content above it up to the heading, and not what stands beside that"),
        pytest.param([5], {5, 6, 7, 4}, id="items beside it, and the content above"),
        pytest.param([13, 1], {13, 1}, id="of several hits"),
        pytest.param([], set(), id="of none"),
    ],
)
def test_content_becomes_visible_around_a_hit(hits: list[int], visible: set[int]) -> None:
    assert light(read_outline(OUTLINE)[0], hits) == visible


def test_hits_are_the_content_that_overlaps_a_stretch() -> None:
    tree, _ = read_outline(OUTLINE)
    assert find_hit_nodes(tree, Span("d", tree[3].end - 1, tree[5].start + 1)) == [3, 4, 5]
    assert find_hit_nodes(tree, Span("d", tree[3].end, tree[4].start)) == []


def test_a_section_is_the_content_directly_below_its_heading_and_below_that() -> None:
    tree, _ = read_outline(OUTLINE)
    assert [list_section(tree, id) for id in (0, 2, 9, 11)] == [[1], [3, 4, 5, 6, 7, 8], [10], []]


def test_the_nearest_content_comes_first() -> None:
    assert order_by_nearness({3, 4, 5, 6, 7, 8}, [5, 8]) == [5, 8, 4, 6, 7, 3]


def test_a_flat_tree_has_the_title_and_all_content() -> None:
    tree, text = read_outline(OUTLINE)
    flat = flatten(tree)
    assert [node.id for node in flat.nodes] == [0, 1, 3, 4, 5, 6, 7, 8, 10, 13]
    assert show(flat, text, [3, 10], 1000).text == "0: Title\n\t3: a one\n\t10: b one"


def test_a_view_shows_all_headings_and_the_wanted_content() -> None:
    tree, text = read_outline(OUTLINE)
    view = show(tree, text, [10, 1], 1000)
    assert view.text == render(tree, text, {0, 1, 2, 9, 10, 11, 12})
    assert list(view.content) == [1, 10]
    assert (view.content[10], view.headings[9]) == ("b one", "===B===")


def test_what_does_not_fit_is_counted_where_it_is_left_out() -> None:
    outline = "0: Title\n" + "".join(
        f"\t{id}: ={'long heading ' * 10}{id}=\n\t\t{id + 1}: {'word ' * 40}\n" for id in range(1, 40, 2)
    )
    tree, text = read_outline(outline)
    view = show(tree, text, [20], 200)
    assert list(view.content) == [20]
    assert 19 in view.headings
    assert f"\t… ({20 - len(view.headings) + 1} more)" in view.text.split("\n")
    assert count_tokens(view.text) <= 200


@st.composite
def trees(draw: st.DrawFn) -> tuple[Tree, str]:
    nodes = [Node(draw(st.sampled_from([-1, 0])), None, "heading", 0, 0, 0, draw(st.sampled_from(["", "T", "a\nb"])))]
    text, path, id = "", [nodes[0]], nodes[0].id
    for _ in range(draw(st.integers(0, 25))):
        del path[draw(st.integers(1, len(path))) :]
        id += draw(st.integers(1, 3))
        said = draw(st.sampled_from(["word", "two\nwords", "x" * 400, "宽" * 300, "5: a", "[ANSWER] 3"]))
        kind = draw(st.sampled_from(["heading", "content"])) if path[-1].kind == "heading" else "content"
        end = len(text) + len(said) * (kind == "content")
        nodes.append(Node(id, path[-1].id, kind, len(text), end, 0, said if kind == "heading" else ""))  # type: ignore[arg-type]
        text += said if kind == "content" else ""
        path.append(nodes[-1])
    return Tree("d", tuple(nodes)), text


@pytest.mark.slow
@given(trees(), st.integers(200, 2000), st.randoms(use_true_random=False))
def test_a_view_of_any_tree_keeps_its_limit_and_names_only_its_own_nodes(
    made: tuple[Tree, str], limit: int, chance: Random
) -> None:
    tree, text = made
    content = [node.id for node in tree.nodes if node.kind == "content"]
    wanted = chance.sample(content, chance.randint(0, len(content)))
    view = show(tree, text, wanted, limit)
    assert count_tokens(view.text) <= limit
    assert set(view.content) <= set(wanted)
    assert not wanted or wanted[0] in view.content
    rows = (
        [LINE.fullmatch(line) or re.fullmatch(r"(\t+)… \(\d+ more\)", line) for line in view.text.split("\n")]
        if view.text
        else []
    )
    assert all(rows)
    named = [int(row[2]) for row in rows if row and row.re is LINE]
    assert named == [id for id in tree.ids if id in view.content or id in view.headings]
    if len(named) == len(wanted) + sum(node.kind == "heading" for node in tree.nodes):
        assert "more)" not in view.text


@given(trees())
def test_a_rendered_tree_can_be_read_again(made: tuple[Tree, str]) -> None:
    tree, text = made
    outline = render(tree, text)
    again, said = read_outline(outline)
    assert [(node.id, node.parent) for node in again.nodes] == [(node.id, node.parent) for node in tree.nodes]
    assert render(again, said) == outline
