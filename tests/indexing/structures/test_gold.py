"""Trees without a model against gold trees and real headings, on machines that have them."""

from pathlib import Path

import pytest

from benchmarks.discourse_trees import TARGETS, balanced, gold_tree, our_joints, read_gum, right_branching, score
from benchmarks.gold_trees import SPAN, Part, tree_of_parts
from benchmarks.section_trees import FORMS, TARGET, read_articles, share_placed
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.structures.discourse import discourse_tree
from keystone.indexing.structures.sections import section_tree
from keystone.indexing.structures.tree import leaves
from keystone.indexing.types import Document
from tests.support.places import SHARED
from tests.support.structures.discourse_trees import check_binary

GUM = SHARED / "gum-rst"
ARTICLES = SHARED / "ibm-claims-wiki" / "corpus.jsonl.gz"
SAMPLE = SHARED / "msmarco-v2.1-sample" / "documents.jsonl"
STORIES = SHARED / "squality" / "documents.jsonl"

needs_data = pytest.mark.skipif(not SHARED.exists(), reason="the real collections are not on this machine")


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("partition", sorted(TARGETS))
def test_discourse_trees_have_the_shape_of_gold_trees(partition: str) -> None:
    golds = read_gum(partition, GUM)
    assert len(golds) == 22
    ours = score(golds, our_joints)
    assert ours.span >= TARGETS[partition]
    assert ours.nuclearity >= 33
    assert ours.relation >= 23.5
    assert score(golds, right_branching).span == pytest.approx(7.85, abs=0.06)
    assert score(golds, balanced).span == pytest.approx(19, abs=0.2)


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("form", FORMS)
def test_headings_of_articles_stand_at_their_places(form: str) -> None:
    placed, right = share_placed(form, list(read_articles(ARTICLES)))
    assert placed >= TARGET
    assert right >= TARGET


ELABORATION, JOINT = "elaboration-additional", "joint-list"
PARTS = [
    Part("1", "7", ELABORATION, "Before,"),
    *(Part(str(number), "6", JOINT, word) for number, word in enumerate(("one", "two", "three"), 2)),
    Part("5", "7", ELABORATION, "after."),
    Part("6", "7", SPAN, None, True),
    Part("7", "8", SPAN),
    Part("8", None, ""),
]


def test_equals_branch_to_the_right_and_a_satellite_behind_is_nearer_than_one_in_front() -> None:
    tree, text = tree_of_parts("x", PARTS, {JOINT})
    check_binary(tree)
    assert text == "Before, one two three after."
    assert [(node.parent, node.relation or text[node.start : node.end], node.nuclearity) for node in tree.nodes] == [
        (None, ELABORATION, "SN"),
        (0, "Before,", ""),
        (0, ELABORATION, "NS"),
        (2, JOINT, "NN"),
        (3, "one", ""),
        (3, JOINT, "NN"),
        (5, "two", ""),
        (5, "three", ""),
        (2, "after.", ""),
    ]


@pytest.mark.parametrize(
    ("place", "part", "reason"),
    [
        (2, Part("3", "9", JOINT, "two"), "segment 3: its parent '9'"),
        (2, Part("2", "6", JOINT, "two"), "segment 2: its id occurs twice"),
        (6, Part("7", None, ""), r"found 2 \(group 7, group 8\)"),
        (5, Part("6", "2", SPAN, None, True), "no way leads"),
        (2, Part("3", "7", JOINT, "two"), "group 6: joint-list: text units 2 to 2 and 4"),
        (2, Part("3", "2", SPAN, "two"), "segment 2: text unit 3"),
        (4, Part("5", "7", ELABORATION), "group 5: it has no nucleus"),
    ],
)
def test_parts_that_form_no_tree_are_named(place: int, part: Part, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        tree_of_parts("x", [*PARTS[:place], part, *PARTS[place + 1 :]], {JOINT})


@pytest.mark.slow
@needs_data
def test_all_gold_trees_are_binary() -> None:
    trees = [gold_tree(record["docid"], record) for _, record in read_json_lines(GUM / "rst.jsonl.gz")]
    assert len(trees) == 263
    for tree, _ in trees:
        check_binary(tree)


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("path", [SAMPLE, STORIES], ids=lambda path: path.parent.name)
def test_trees_of_real_documents_cover_them(path: Path) -> None:
    for _, record in read_json_lines(path):
        text = record["text"]
        document = Document(record["docid"], text, record["title"], headings=record.get("headings", ""))
        sections = section_tree(document)
        expected = "".join(text.split())
        own = sections.nodes[1:]
        for nodes in (own, leaves(discourse_tree(sections, text))):
            assert "".join("".join(text[node.start : node.end].split()) for node in nodes) == expected
