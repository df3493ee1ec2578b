"""Files of trees: `.rs3`, `.rs4`, `.dis` and JSON come back as they were written; bad ones name file and place."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.indexing.structures.discourse import Leaf, binary_tree, discourse_tree
from keystone.indexing.structures.rst.dis import format_dis, parse_dis
from keystone.indexing.structures.rst.files import FORMATS, read_tree, write_tree
from keystone.indexing.structures.rst.joints import TreeText
from keystone.indexing.structures.rst.rs3 import format_rs3, parse_rs3
from keystone.indexing.structures.sections import section_tree
from keystone.indexing.structures.tree import Node, Nuclearity, Tree, depths, leaves
from keystone.indexing.types import Document

RST = sorted(set(FORMATS) - {".json"})


def bare(found: TreeText) -> list[tuple[object, ...]]:
    """What RST formats keep of each node; its place in the text as the words of a leaf."""
    tree, text = found
    return [
        (node.id, node.parent, node.kind, node.relation, node.nuclearity)
        + ((text[node.start : node.end],) if node.kind == "content" else ())
        for node in tree.nodes
    ]


NUCLEARITIES: list[Nuclearity] = ["NS", "SN", "NN"]


def labeled(node: Node, relation: str, nuclearity: Nuclearity) -> Node:
    return replace(node, relation=relation, nuclearity=nuclearity, cue="") if node.kind == "relation" else node


PARTS = ["He said", "that it rained,", 'because "A & <b>" (c)\nis so.', "But \u00e9 _x_", "", "1 ) ( 2", "\u2028"]


@st.composite
def discourse_trees(draw: st.DrawFn) -> TreeText:
    """Trees of any shape, with relations of every nuclearity."""
    parts = draw(st.lists(st.one_of(st.sampled_from(PARTS), st.text("ab<&)(_ ", max_size=5)), min_size=1, max_size=12))
    spans, at = [], 0
    for number, part in enumerate(parts):
        spans.append(Leaf(at, at + len(part), draw(st.integers(0, 3)) if number else 0))
        at += len(part) + 1
    tree = binary_tree("name", spans, " ".join(parts))
    labels = st.tuples(st.sampled_from(["joint", "cause", "x-y"]), st.sampled_from(NUCLEARITIES))
    nodes = []
    for node in tree.nodes:
        relation, nuclearity = draw(labels)
        nodes.append(labeled(node, f"{relation}-m" if nuclearity == "NN" else relation, nuclearity))
    return TreeText(Tree("name", tuple(nodes)), " ".join(parts))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", sorted(FORMATS))
@given(found=discourse_trees())
def test_a_discourse_tree_comes_back(suffix: str, found: TreeText) -> None:
    format = FORMATS[suffix]
    content = format.format(*found)
    again = format.parse(content, "name")
    assert bare(again) == bare(found)
    assert format.format(*again) == content


TEXT = "Lead text.\n\n# A\n\nIt rains. But he left.\n\n- one\n  - two\n\n## B\n\nThe end."


def test_json_keeps_all_of_any_tree(tmp_path: Path) -> None:
    sections = section_tree(Document("d#1", TEXT, "T"), "markdown", "Lead")
    for number, tree in enumerate([sections, discourse_tree(sections, TEXT)]):
        path = tmp_path / f"{number}.json"
        write_tree(path, tree, TEXT)
        assert read_tree(path) == (tree, TEXT)


@pytest.mark.parametrize("suffix", RST)
def test_rst_formats_get_sections_as_relations(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"d{suffix}"
    write_tree(path, section_tree(Document("d", TEXT, "T"), "markdown"), TEXT)
    found = read_tree(path)
    assert bare(found) == [
        (0, None, "relation", "organization", "SN"),
        (1, 0, "content", "", "", "T"),
        (2, 0, "relation", "joint", "NN"),
        (3, 2, "content", "", "", "Lead text."),
        (4, 2, "relation", "organization", "SN"),
        (5, 4, "content", "", "", "A"),
        (6, 4, "relation", "joint", "NN"),
        (7, 6, "relation", "elaboration", "NS"),
        (8, 7, "content", "", "", "It rains. But he left."),
        (9, 7, "relation", "elaboration", "NS"),
        (10, 9, "content", "", "", "one"),
        (11, 9, "content", "", "", "two"),
        (12, 6, "relation", "organization", "SN"),
        (13, 12, "content", "", "", "B"),
        (14, 12, "content", "", "", "The end."),
    ]
    write_tree(path, *found)
    assert read_tree(path) == found


@pytest.mark.parametrize("suffix", sorted(FORMATS))
@pytest.mark.parametrize(("title", "text"), [("", ""), ("T", ""), ("", "One."), ("", "One.\n\n# A\n\nTwo.")])
def test_small_section_trees(tmp_path: Path, suffix: str, title: str, text: str) -> None:
    path = tmp_path / f"d{suffix}"
    write_tree(path, section_tree(Document("d", text, title), "markdown"), text)
    found = read_tree(path)
    if suffix != ".json":
        assert found.text == " ".join(part for part in (title, *text.replace("#", "").split()) if part)


NAMELESS = Tree(
    "d", (Node(0, None, "relation", 0, 3, nuclearity="NS"), Node(1, 0, "content", 0, 1), Node(2, 0, "content", 2, 3))
)


@pytest.mark.parametrize("suffix", RST)
def test_rst_formats_refuse_relations_without_a_name(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(UserError, match="node 0: relation ''"):
        write_tree(tmp_path / f"d{suffix}", NAMELESS, "a b")


def test_dis_refuses_relations_with_blanks(tmp_path: Path) -> None:
    tree = Tree("d", (replace(NAMELESS.nodes[0], relation="a b"), *NAMELESS.nodes[1:]))
    with pytest.raises(UserError, match=r"relation 'a b': a \.dis file holds no relation with blanks"):
        write_tree(tmp_path / "d.dis", tree, "a b")


def test_characters_that_a_format_cannot_hold() -> None:
    tree, text = Tree("d", (Node(0, None, "content", 0, 9),)), "a\x00_!b\ud800\r\nc"
    assert parse_rs3(format_rs3(tree, text), "d").text == "a?_!b?\r\nc"
    assert parse_dis(format_dis(tree, text.replace("\ud800", "")), "d").text == "a\x00_ !b\r\nc"


RS4 = """<?xml version="1.0" encoding="UTF-8"?>
<rst><header><relations>
<rel name="elaboration-additional" type="rst"/><rel name="joint-list" type="multinuc"/>
</relations></header>
<body>
<segment id="1" parent="7" relname="elaboration-additional">Before,</segment>
<segment id="2" parent="6" relname="joint-list">one</segment>
<segment id="3" parent="6" relname="joint-list">two</segment>
<segment id="4" parent="6" relname="joint-list">three</segment>
<segment id="5" parent="7" relname="elaboration-additional">after.</segment>
<group id="6" type="multinuc" parent="7" relname="span"/>
<group id="7" type="span" parent="8" relname="span"/>
<group id="8" type="span"/>
<secedge id="1-2" source="1" target="2" relname="joint-list"/>
</body></rst>
"""

DIS = """( Root (span 1 5)
  ( Satellite (leaf 1) (rel2par elaboration-additional) (text _!Before,_!) )
  ( Nucleus (span 2 4) (rel2par span)
    ( Nucleus (leaf 2) (rel2par joint-list) (text _!one_!) )
    ( Nucleus (leaf 3) (rel2par joint-list) (text _!two_!) ) //TT_ERR
    ( Nucleus (leaf 4) (rel2par joint-list) (text _!three_!) ) )
  ( Satellite (leaf 5) (rel2par elaboration-additional) (text _!after._!) )
)
"""


@pytest.mark.parametrize(("name", "content"), [("x.rs4", RS4), ("x.dis", DIS)])
def test_files_of_others_become_binary(tmp_path: Path, name: str, content: str) -> None:
    """Equals branch to the right; the satellite behind a nucleus is nearer than the one in front."""
    (tmp_path / name).write_text(content)
    found = read_tree(tmp_path / name)
    assert found.tree.doc_id == "x"
    assert bare(found) == [
        (0, None, "relation", "elaboration-additional", "SN"),
        (1, 0, "content", "", "", "Before,"),
        (2, 0, "relation", "elaboration-additional", "NS"),
        (3, 2, "relation", "joint-list", "NN"),
        (4, 3, "content", "", "", "one"),
        (5, 3, "relation", "joint-list", "NN"),
        (6, 5, "content", "", "", "two"),
        (7, 5, "content", "", "", "three"),
        (8, 2, "content", "", "", "after."),
    ]


NODE = {"id": 0, "parent": None, "kind": "content", "start": 0, "end": 1}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        pytest.param("x.txt", "", "ends with .rs3, .rs4, .dis, .json", id="another ending"),
        pytest.param("x.rs3", "<rst>\n<body>", "line 2: no element found", id="XML that ends too soon"),
        pytest.param("x.rs3", "", "line 1: no element found", id="an empty file"),
        pytest.param("x.rs3", "<rst/>", "expected one element without a parent, found 0 (none)", id="no segment"),
        pytest.param(
            "x.rs3", RS4.replace('id="3" parent="6"', 'id="3" parent="9"'), "segment 3: its parent '9'", id="no parent"
        ),
        pytest.param(
            "x.rs3",
            RS4.replace('id="3" parent="6" relname="joint-list"', 'id="3" parent="6"'),
            "segment 3: it has a",
            id="no relation",
        ),
        pytest.param("x.rs3", RS4.replace('<segment id="3"', "<segment"), "a segment has no id", id="no id"),
        pytest.param("x.rs3", RS4.replace('id="3"', 'id="2"'), "segment 2: its id occurs twice", id="an id twice"),
        pytest.param(
            "x.rs3", RS4.replace(' parent="8" relname="span"', ""), "found 2 (group 7, group 8)", id="two roots"
        ),
        pytest.param(
            "x.rs3",
            RS4.replace('<group id="6" type="multinuc" parent="7"', '<group id="6" type="multinuc" parent="2"'),
            "no way leads",
            id="a circle",
        ),
        pytest.param(
            "x.rs3",
            RS4.replace('id="3" parent="6"', 'id="3" parent="7"'),
            "group 6: joint-list: text units 2 to 2 and 4",
            id="crossing",
        ),
        pytest.param(
            "x.rs3",
            RS4.replace('"3" parent="6" relname="joint-list"', '"3" parent="2" relname="span"'),
            "segment 2: text unit 3",
            id="a nucleus of text",
        ),
        pytest.param(
            "x.rs3",
            RS4.replace("</body>", '<group id="9" type="span" parent="8" relname="span"/></body>'),
            "group 9: it has no nucleus",
            id="an empty group",
        ),
        pytest.param("x.dis", DIS[:-3], "x.dis: line 7: the file ends within the tree", id="a bracket too few"),
        pytest.param("x.dis", f"{DIS})", "line 9: ')' follows the end", id="a bracket too many"),
        pytest.param("x.dis", "( Root (text _!a", "line 1: the file ends within (text", id="a text that does not end"),
        pytest.param("x.dis", "Root", "line 1: expected a bracket, found 'Root'", id="no bracket"),
        pytest.param(
            "x.dis", "( root", "line 1: expected a node or one of its values, found 'root'", id="another word"
        ),
        pytest.param(
            "x.dis", "( Root\n(span 1 (2) ) )", "line 2: a bracket opens within (span", id="brackets in a value"
        ),
        pytest.param("x.dis", "( Root (span 1 1) )", "line 1: expected a leaf with a text", id="a node without leaves"),
        pytest.param(
            "x.dis", DIS.replace("joint-list", "span"), "line 3: a child has no relation", id="no relation in .dis"
        ),
        pytest.param("x.dis", b"( Root \xff", "not UTF-8: invalid start byte at byte 7", id="not UTF-8"),
        pytest.param("x.json", "{\n,", "line 2: not JSON", id="not JSON"),
        pytest.param("x.json", "[]", "expected a JSON object with the list `nodes`", id="a list"),
        pytest.param("x.json", json.dumps({"nodes": []}), "at least one node", id="no nodes"),
        pytest.param(
            "x.json", json.dumps({"nodes": [{}]}), "nodes[0]: expected an object with id, parent", id="no fields"
        ),
        pytest.param(
            "x.json", json.dumps({"nodes": [NODE | {"x": 1}]}), "nodes[0]: expected an object", id="a field more"
        ),
        pytest.param(
            "x.json", json.dumps({"nodes": [NODE | {"id": True}]}), "nodes[0]: id cannot be True", id="another type"
        ),
        pytest.param(
            "x.json", json.dumps({"nodes": [NODE]}), "ends at character 1 of a text of 0", id="a text too short"
        ),
        pytest.param(
            "x.json", json.dumps({"text": "a", "nodes": [NODE | {"kind": "x"}]}), "unknown kind 'x'", id="another kind"
        ),
    ],
)
def test_bad_files_name_the_place(tmp_path: Path, name: str, content: str | bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        read_tree(path)
    assert str(error.value).startswith(f"{path}: ")
    assert reason in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.rs3"):
        read_tree(tmp_path / "x.rs3")


WORDS = st.lists(st.sampled_from(DIS.split()), max_size=40).map(lambda words: " ".join(words).encode())


@pytest.mark.parametrize("suffix", RST)
@given(content=st.one_of(st.binary(max_size=60), WORDS))
def test_any_bytes_are_a_tree_or_a_value_error(suffix: str, content: bytes) -> None:
    with suppress(ValueError):
        assert len(FORMATS[suffix].parse(content, "x").tree) > 0


CUT = st.tuples(st.integers(0, len(RS4)), st.integers(0, 30), st.sampled_from(["", "6", "span", "joint-list"]))


@given(st.lists(CUT, max_size=3))
def test_damaged_rs4_is_a_tree_or_a_value_error(cuts: list[tuple[int, int, str]]) -> None:
    content = RS4
    for start, length, replacement in cuts:
        content = content[:start] + replacement + content[start + length :]
    with suppress(ValueError):
        assert len(parse_rs3(content.encode(), "x").tree) > 0


LEVELS = 10_000


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".rs3", ".dis", ".json"])
@pytest.mark.parametrize(("leans", "nuclearity"), [("left", "NS"), ("right", "NN")])
def test_ten_thousand_levels(tmp_path: Path, suffix: str, nuclearity: Nuclearity, leans: str) -> None:
    gaps = range(LEVELS) if leans == "left" else range(LEVELS, 0, -1)
    spans = [Leaf(2 * at, 2 * at + 1, gap) for at, gap in enumerate([0, *gaps])]
    text = "x " * LEVELS + "x"
    tree = binary_tree("d", spans, text)
    tree = Tree("d", tuple(labeled(node, "a", nuclearity) for node in tree.nodes))
    assert max(depths(tree).values()) == LEVELS
    write_tree(tmp_path / f"d{suffix}", tree, text)
    again = read_tree(tmp_path / f"d{suffix}")
    assert again == (tree, text)
    assert len(leaves(again.tree)) == LEVELS + 1
