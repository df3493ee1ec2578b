"""Trees without a model against gold trees and real headings, on machines that have them."""

from pathlib import Path

import pytest

from benchmarks.discourse_trees import TARGETS, balanced, gold_tree, our_joints, read_gum, right_branching, score
from benchmarks.section_trees import FORMS, TARGET, read_articles, share_placed
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.structures.discourse import discourse_tree
from keystone.indexing.structures.rst.dis import format_dis, parse_dis
from keystone.indexing.structures.rst.rs3 import format_rs3, parse_rs3
from keystone.indexing.structures.sections import section_tree
from keystone.indexing.structures.tree import leaves
from keystone.indexing.types import Document
from tests.support.places import SHARED

pytestmark = pytest.mark.slow

GUM = SHARED / "gum-rst"
ARTICLES = SHARED / "ibm-claims-wiki" / "corpus.jsonl.gz"
SAMPLE = SHARED / "msmarco-v2.1-sample" / "documents.jsonl"
STORIES = SHARED / "squality" / "documents.jsonl"

needs_data = pytest.mark.skipif(not SHARED.exists(), reason="the real collections are not on this machine")


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


@needs_data
@pytest.mark.parametrize("form", FORMS)
def test_headings_of_articles_stand_at_their_places(form: str) -> None:
    placed, right = share_placed(form, list(read_articles(ARTICLES)))
    assert placed >= TARGET
    assert right >= TARGET


@needs_data
def test_gold_trees_come_back_from_files() -> None:
    trees = [gold_tree(record["docid"], record) for _, record in read_json_lines(GUM / "rst.jsonl.gz")]
    assert len(trees) == 263
    for tree, text in trees:
        assert parse_rs3(format_rs3(tree, text), tree.doc_id) == (tree, text)
        assert parse_dis(format_dis(tree, text), tree.doc_id) == (tree, text)


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
