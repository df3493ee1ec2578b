"""Discourse trees without a model: strictly binary, leaves of 2 to 5 sentences, labels from connectives."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.structures.blocks import LONGEST_SENTENCE, sentence_spans
from keystone.indexing.structures.discourse import (
    AFTER_HEADING,
    BEFORE_HEADING,
    BETWEEN_PARAGRAPHS,
    BETWEEN_SENTENCES,
    CONNECTIVES,
    IN_SENTENCE,
    LONGEST_CHAIN,
    MOST_SENTENCES,
    Leaf,
    Related,
    Signal,
    binary_tree,
    discourse_tree,
    find_connective,
    relations_from,
    signal_across,
    signal_within,
)
from keystone.indexing.structures.sections import section_tree
from keystone.indexing.structures.tree import Node, Tree, children, depths, leaves
from keystone.indexing.types import Document
from tests.support.structures.discourse_trees import draw_chain, draw_gurn, number_nodes


def shape(tree: Tree) -> str:
    """The leaves in text order, with brackets around each joint."""
    parts: dict[int, str] = {}
    number = len(leaves(tree))
    for node in reversed(tree.nodes):
        if node.kind == "content":
            number -= 1
            parts[node.id] = "abcdefghijklmnopqrstuvwxyz"[number]
        else:
            parts[node.id] = f"({''.join(parts[child.id] for child in children(tree, node.id))})"
    return parts[0]


def over(gaps: list[int], headings: frozenset[int] = frozenset()) -> Tree:
    """The tree over leaves of one character."""
    found = [Leaf(2 * at, 2 * at + 1, gap, at in headings) for at, gap in enumerate([0, *gaps])]
    return binary_tree("d", found, "x " * len(found))


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        pytest.param([], "a", id="one leaf"),
        pytest.param([1, 1, 1], "(a(b(cd)))", id="equal gaps branch to the right"),
        pytest.param([0, 1, 0], "((ab)(cd))", id="the stronger gap splits first"),
        pytest.param([0, 1, 2, 0, 1], "(((ab)c)((de)f))", id="three strengths"),
        pytest.param([2, 0, 1, 2], "(a(((bc)d)e))", id="weaker gaps between stronger ones"),
        pytest.param([1] * 12, "((a(b(c(d(ef)))))(g(h(i(j(k(lm)))))))", id="thirteen units: two chains"),
    ],
)
def test_shapes(gaps: list[int], expected: str) -> None:
    assert shape(over(gaps)) == expected


def test_defaults_and_headings() -> None:
    tree = over(
        [AFTER_HEADING, BETWEEN_PARAGRAPHS, BETWEEN_SENTENCES, IN_SENTENCE, BEFORE_HEADING, AFTER_HEADING],
        headings=frozenset((0, 5)),
    )
    assert shape(tree) == "((a(b(c(de))))(fg))"
    assert [(node.relation, node.nuclearity, node.cue) for node in tree.nodes if node.kind == "relation"] == [
        ("joint", "NN", ""),
        ("organization", "SN", ""),
        ("joint", "NN", ""),
        ("elaboration", "NS", ""),
        ("elaboration", "NS", ""),
        ("organization", "SN", ""),
    ]


@pytest.mark.parametrize("count", [1, 12, 13, 144, 145, 10_000])
def test_long_lists_are_no_chains(count: int) -> None:
    tree = over([1] * (count - 1))
    layers = 1
    while LONGEST_CHAIN**layers < count:
        layers += 1
    assert len(tree) == 2 * count - 1
    assert max(depths(tree).values()) <= layers * LONGEST_CHAIN


@given(st.lists(st.integers(0, 6), max_size=60))
def test_any_gaps_give_a_binary_tree_in_pre_order(gaps: list[int]) -> None:
    tree = over(gaps)
    assert tree.ids == tuple(range(2 * len(gaps) + 1))
    assert [leaf.start for leaf in leaves(tree)] == list(range(0, 2 * len(gaps) + 2, 2))
    for node in tree.nodes:
        parts = children(tree, node.id)
        assert len(parts) == (2 if node.kind == "relation" else 0)
        if parts:
            assert (node.start, node.end) == (parts[0].start, parts[1].end)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        pytest.param("He left", "because it rained", Signal("cause", "NS", "because"), id="right part"),
        pytest.param("Although it rained,", "he left", Signal("concession", "SN", "although"), id="left part"),
        pytest.param("He left", "but came back", Signal("antithesis", "SN", "but"), id="a nucleus behind"),
        pytest.param("He left", "and came back", Signal("joint", "NN", "and"), id="equals"),
        pytest.param("She said", "that it rained", Signal("attribution", "SN", "said"), id="reported speech"),
        pytest.param("She said,", "\u201cit rains\u201d", Signal("attribution", "SN", "said"), id="direct speech"),
        pytest.param("She said", "because he asked", Signal("cause", "NS", "because"), id="no speech"),
        pytest.param("If it rains,", "then he leaves", Signal("condition", "SN", "if"), id="if and then"),
        pytest.param("He left", "in order to see", Signal("purpose", "NS", "in order to"), id="the longest connective"),
        pytest.param("And he left", "it rained", None, id="a left part that is no satellite"),
        pytest.param("It rained", "he left", None, id="no connective"),
    ],
)
def test_signals_within_a_sentence(left: str, right: str, expected: Signal | None) -> None:
    assert signal_within(left, right) == expected


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        pytest.param("However, he left.", Signal("contrast", "NN", "however"), id="with a comma"),
        pytest.param("\u201cFor example \u2014 he left", Signal("elaboration", "NS", "for example"), id="in quotes"),
        pytest.param("To leave is hard.", None, id="a connective of clauses"),
        pytest.param("Butter melts.", None, id="a part of a word"),
        pytest.param("", None, id="no text"),
    ],
)
def test_signals_between_sentences(right: str, expected: Signal | None) -> None:
    assert signal_across(right) == expected


@pytest.mark.parametrize("cue", sorted(CONNECTIVES))
def test_each_connective_is_found(cue: str) -> None:
    assert find_connective(f"{cue.capitalize()} x y z") == cue


def tree_of(text: str, format: str = "markdown") -> Tree:
    return discourse_tree(section_tree(Document("d", text), format), text)


def sentences(count: int) -> str:
    return " ".join(["One is here."] * count)


@pytest.mark.parametrize(
    ("paragraphs", "expected"),
    [
        pytest.param([1], [1], id="a section of one sentence"),
        pytest.param([5], [5], id="five"),
        pytest.param([6], [3, 3], id="six"),
        pytest.param([11], [3, 4, 4], id="eleven"),
        pytest.param([3, 3], [3, 3], id="paragraphs"),
        pytest.param([1, 1, 1, 1, 1], [2, 3], id="dialogue"),
        pytest.param([1, 5], [3, 3], id="a sentence before a paragraph"),
        pytest.param([5, 1], [3, 3], id="a sentence after a paragraph"),
    ],
)
def test_leaves_have_two_to_five_sentences(paragraphs: list[int], expected: list[int]) -> None:
    text = "\n\n".join(sentences(count) for count in paragraphs)
    assert [text.count(".", leaf.start, leaf.end) for leaf in leaves(tree_of(text))] == expected


def test_sections_nest_and_leaves_begin_with_their_headings() -> None:
    parts = ["Lead. L.", "# A\n\n## B\n\nText b. B.", "## C\n\nText c. C.", "# D\n\nText d. D."]
    text = "\n\n".join(parts)
    tree = tree_of(text)
    assert shape(tree) == "(a((bc)d))"
    assert [text[leaf.start : leaf.end] for leaf in leaves(tree)] == [
        "Lead. L.",
        "A\n\n## B\n\nText b. B.",
        "C\n\nText c. C.",
        "D\n\nText d. D.",
    ]


def test_a_document_without_content_is_one_empty_leaf() -> None:
    assert tree_of(" \n").nodes == (Node(0, None, "content", 0, 0),)


LINES = st.lists(st.sampled_from(["A", "B", "", "But x.", "It is. So it was! And?", sentences(9), "- i"]), max_size=25)


@given(st.one_of(st.text(max_size=400), LINES.map("\n".join)), st.lists(st.sampled_from("AB"), max_size=4))
def test_any_text_is_covered_by_leaves_of_few_sentences(text: str, headings: list[str]) -> None:
    sections = section_tree(Document("d", text, headings="\n".join(headings)))
    found = leaves(discourse_tree(sections, text))
    assert "".join("".join(text[leaf.start : leaf.end].split()) for leaf in found) == "".join(text.split())
    ends = {node.end: node.start for node in sections.nodes if node.kind == "heading" and node.end}
    for leaf in found:
        start = max((end for end in ends if leaf.start < end < leaf.end), default=leaf.start)
        assert len(sentence_spans(text, start, leaf.end)) <= MOST_SENTENCES


def test_a_text_without_ends_of_sentences_has_bounded_leaves() -> None:
    text = "word " * 100_000
    begun = time.process_time()
    found = leaves(tree_of(text))
    assert max(leaf.end - leaf.start for leaf in found) <= MOST_SENTENCES * (LONGEST_SENTENCE + 1)
    assert time.process_time() - begun < 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("# A\n\nText. Text.\n\n" * 30_000, id="sections"),
        pytest.param("But so. And then.\n\n" * 30_000, id="paragraphs"),
        pytest.param("But so. " * 100_000, id="sentences"),
    ],
)
def test_long_documents_take_linear_time(text: str) -> None:
    begun = time.process_time()
    tree = tree_of(text)
    assert time.process_time() - begun < 60
    assert max(depths(tree).values()) < 100


def test_the_relations_of_gurn() -> None:
    """DiscoRAG, Listing 1: the seven relations of node 39, nearest first, with the depths of its trace."""
    tree = number_nodes(draw_gurn())
    assert relations_from(tree, 39) == [
        Related("Attribution", 40, 11),
        Related("Attribution", 37, 10),
        Related("Attribution", 17, 9),
        Related("Elaboration", 41, 8),
        Related("Contrast", 42, 7),
        Related("Same-Unit", 13, 6),
        Related("Joint", 9, 5),
    ]
    assert relations_from(tree, 39, most=2) == relations_from(tree, 39)[:2]
    assert relations_from(tree, 0) == []


def test_relations_in_a_deep_tree() -> None:
    tree = number_nodes(draw_chain(10_000))
    assert len(relations_from(tree, 19_998, most=20_000)) == 9_999
