"""Section trees, from lists of headings and from markup; and the places of listed headings in a text."""

import time
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.structures.blocks import LONGEST_PARAGRAPH
from keystone.indexing.structures.sections import BACK_MATTER, FORMATS, normal_form, place_headings, section_tree
from keystone.indexing.structures.tree import Tree, depths, leaves
from keystone.indexing.types import Document

PROSE = "It began a long time ago, and nobody knows for certain how it went on."


def outline(tree: Tree, text: str) -> list[str]:
    """A line a node: one `-` a level, the label of a heading after `#`, the text of content."""
    depth = depths(tree)
    return [
        "-" * depth[node.id] + (f"#{node.label}" if node.kind == "heading" else text[node.start : node.end])
        for node in tree.nodes[1:]
    ]


def tree_of(text: str, headings: str = "", format: str = "headings", title: str = "T") -> list[str]:
    return outline(section_tree(Document("d", text, title, headings=headings), format), text)


@pytest.mark.parametrize(
    ("text", "headings", "expected"),
    [
        pytest.param("", "", [], id="no text"),
        pytest.param("a\n\nb", "", ["-a", "-b"], id="no headings"),
        pytest.param("x\nA\ny\nB\nz", "A\nB", ["-x", "-#A", "--y", "-#B", "--z"], id="flat"),
        pytest.param(
            "A\nB\nx\nC\ny", "A\nB\nC", ["-#A", "--#B", "---x", "--#C", "---y"], id="a heading above a heading"
        ),
        pytest.param(
            "A\nB\nA\nx\nB\ny", "A\nB\nA\nB", ["-A", "-B", "-#A", "--x", "-#B", "--y"], id="contents in front"
        ),
        pytest.param("A\nB\nC\nD\nE\nx", "A\nB\nC\nD\nE", ["-A", "-B", "-#C", "--#D", "---#E", "----x"], id="a menu"),
        pytest.param("x\nA", "A", ["-x", "-A"], id="no text below the last heading"),
        pytest.param(
            "1 A\nx\n1.1 B\ny\n2 C\nz\n7.1 D\nu",
            "1 A\n1.1 B\n2 C\n7.1 D",
            ["-#1 A", "--x", "--#1.1 B", "---y", "-#2 C", "--z", "-#7.1 D", "--u"],
            id="numbers give levels below a number that is there",
        ),
        pytest.param(
            "A\n1 B\nx\n2 C\ny\nD\n1.1 E\nz",
            "A\n1 B\n2 C\nD\n1.1 E",
            ["-#A", "--#1 B", "---x", "--#2 C", "---y", "-#D", "--#1.1 E", "---z"],
            id="a heading above a number",
        ),
        pytest.param("T\nx\nB\ny", "T\nB", ["-T", "-x", "-#B", "--y"], id="the title is no section"),
        pytest.param("A\nx\nReferences\nr", "A\nReferences", ["-#A", "--x", "--References", "--r"], id="back matter"),
        pytest.param("Energy sources\nx", "Energy sources", ["-#Energy sources", "--x"], id="no back matter"),
    ],
)
def test_lists_of_headings(text: str, headings: str, expected: list[str]) -> None:
    assert tree_of(text, headings) == expected


@pytest.mark.parametrize("title", sorted(BACK_MATTER))
@pytest.mark.parametrize("form", ["{} ", " on method {}"])
def test_only_an_equal_title_is_back_matter(title: str, form: str) -> None:
    text = f"## {form.format(title.title())}\nx\n\n## B\ny"
    kept = tree_of(text, format="markdown")
    assert (len(kept) == 4) == (form != "{} ")
    assert kept[-2:] == ["-#B", "--y"]


@pytest.mark.parametrize("format", sorted(FORMATS))
@pytest.mark.parametrize("text", ["", " \n\n\t", "\n"])
def test_a_document_without_content_is_its_title(format: str, text: str) -> None:
    tree = section_tree(Document("d", text, "Title"), format)
    assert [(node.kind, node.label) for node in tree.nodes] == [("heading", "Title")]


def test_an_unknown_format_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        tree_of("a", format="pdf")


def test_a_heading_without_content_goes_and_ids_have_no_gap() -> None:
    tree = section_tree(Document("d", "# A\n\n## B\n\n# C\n\n## D\nd\n\n# E", "T"), "markdown")
    assert [node.label for node in tree.nodes if node.kind == "heading"] == ["T", "C", "D"]
    assert tree.ids == tuple(range(len(tree)))


def test_a_long_paragraph_is_split_at_sentences() -> None:
    text = f"{PROSE} " * 100
    tree = section_tree(Document("d", text))
    pieces = [text[node.start : node.end] for node in leaves(tree)]
    assert len(pieces) > 4
    assert all(len(piece) <= LONGEST_PARAGRAPH and piece.endswith("went on.") for piece in pieces)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a\nb", ["-a", "-b"], id="short lines are paragraphs"),
        pytest.param(f"{PROSE[:60]}\n{PROSE[60:]}", 1, id="a wrapped line"),
        pytest.param(f"{PROSE}\n{PROSE}", 2, id="two sentences on lines of their own"),
        pytest.param(f"{PROSE[:60]}\n\n{PROSE[60:]}", 2, id="a blank line always ends a paragraph"),
    ],
)
def test_paragraphs(text: str, expected: list[str] | int) -> None:
    found = tree_of(text)
    assert (len(found) if isinstance(expected, int) else found) == expected


HEADING = st.sampled_from(["A", "B", "C d", "References", "1 A", "1.1 B", "2 D", "T", ""])
LINE = st.one_of(
    HEADING, st.sampled_from(["x", PROSE, "", "- i", "  - j", "# A", "A", "* q", "<h2>B</h2>", "== C d =="])
)


@given(st.one_of(st.text(max_size=400), st.lists(LINE, max_size=30).map("\n".join)), st.lists(HEADING, max_size=8))
def test_any_text_is_covered_exactly(text: str, headings: list[str]) -> None:
    """All that is no blank lies in one heading or one leaf, in order (`Tree` itself refuses content that overlaps)."""
    tree = section_tree(Document("d", text, "T", headings="\n".join(headings)))
    spans = [(node.start, node.end) for node in tree.nodes[1:]]
    assert spans == sorted(spans)
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert all(leaf.kind == "content" for leaf in leaves(tree)) or len(tree) == 1


SOURCE = st.one_of(
    st.text(max_size=400),
    st.lists(
        st.one_of(
            LINE, st.sampled_from(["```", "---", "{{", "}}", "{|", "|}", "<!--", "-->", "<ul><li>", "</ul>", "<p"])
        ),
        max_size=30,
    ).map("\n".join),
)


@given(SOURCE, st.sampled_from(["markdown", "html", "wikitext"]))
def test_any_source_is_a_tree_of_disjoint_spans(text: str, format: str) -> None:
    tree = section_tree(Document("d", text, "T"), format)
    end = 0
    for node in tree.nodes[1:]:
        assert end <= node.start < node.end <= len(text)
        assert text[node.start : node.end].strip() == text[node.start : node.end]
        end = node.end
    assert all(leaf.kind == "content" for leaf in leaves(tree)) or len(tree) == 1


COUNT = 30_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "text"),
    [
        pytest.param("headings", "A\nx\n" * 100_000, id="headings in a list"),
        pytest.param("headings", "x" * 20 * COUNT, id="one long word"),
        pytest.param("headings", "x. " * COUNT, id="one long line"),
        pytest.param("markdown", "# A\nx\n" * 100_000, id="headings in Markdown"),
        pytest.param("markdown", "```\n" * COUNT, id="fences"),
        pytest.param("markdown", "# " * COUNT, id="a line of marks"),
        pytest.param("markdown", "`" * COUNT + "x`", id="a line of backticks"),
        pytest.param("html", "<h1>A</h1>x" * COUNT, id="headings in HTML"),
        pytest.param("html", "<h1><ul><li>" * COUNT, id="nothing is closed in HTML"),
        pytest.param("html", "<" * COUNT, id="brackets"),
        pytest.param("html", "<!-- <script>" * COUNT, id="comments and scripts that do not end"),
        pytest.param("html", "<a " * COUNT, id="tags that do not end"),
        pytest.param("wikitext", "== A ==\nx\n" * COUNT, id="headings in wikitext"),
        pytest.param("wikitext", "{{\n" * COUNT, id="templates that do not end"),
        pytest.param("wikitext", "{{\n" * COUNT + "|}\n" * COUNT, id="templates that end as tables"),
        pytest.param("wikitext", "<!--\n" * COUNT, id="comments that do not end"),
        pytest.param("wikitext", "=" * COUNT, id="a line of equals signs"),
    ],
)
def test_hostile_texts_take_linear_time(format: str, text: str) -> None:
    begun = time.process_time()
    section_tree(Document("d", text, headings="A\n" * 100_000 if "A\n" in text else ""), format)
    assert time.process_time() - begun < 60


@pytest.mark.parametrize(
    ("format", "text"),
    [
        pytest.param("html", "<ul><li>x" * 10_000, id="HTML"),
        pytest.param("wikitext", "\n".join("*" * depth + "x" for depth in range(1, 1000)), id="wikitext"),
        pytest.param("markdown", "\n".join("  " * depth + "- x" for depth in range(1000)), id="Markdown"),
    ],
)
def test_deep_lists(format: str, text: str) -> None:
    tree = section_tree(Document("d", text), format)
    assert max(depths(tree).values()) == len(tree) - 1 == text.count("x")


def placed(text: str, headings: list[str]) -> list[int | None]:
    """The number of the line on which each heading is found."""
    return [None if span is None else text.count("\n", 0, span[0]) for span in place_headings(text, headings)]


@pytest.mark.parametrize(
    ("lines", "headings", "expected"),
    [
        pytest.param(["A", PROSE, "B", PROSE], ["A", "B"], [0, 2], id="each has its line"),
        pytest.param(["A", "B", "A", PROSE, "B", PROSE], ["A", "B"], [2, 4], id="a table of contents is passed over"),
        pytest.param(["A", "B", "A", PROSE, "B", PROSE], ["A", "B", "A", "B"], [0, 1, 2, 4], id="the list is doubled"),
        pytest.param(["A", PROSE, "A", "x"], ["A"], [0], id="prose below counts more than a later place"),
        pytest.param(["A", "x", "A", "y"], ["A"], [2], id="of equal places the later one"),
        pytest.param(["A", PROSE, "B", PROSE, "A", PROSE], ["A", "B", "A"], [0, 2, 4], id="the same words twice"),
        pytest.param(["B", PROSE, "A", PROSE], ["A", "B", "C"], [2, None, None], id="places rise; one is not there"),
        pytest.param(["  hISTORY :", PROSE], ["History"], [0], id="case, space and a colon make no difference"),
        pytest.param([f"{PROSE} How to go on", PROSE], ["How to go on"], [0], id="after a sentence on its line"),
        pytest.param(["A a", PROSE], ["A"], [None], id="a part of a line is no heading"),
        pytest.param(["", "A"], ["", " ", "A"], [None, None, 1], id="empty headings have no place"),
        pytest.param([" ".join("abcdefghijklmnop")], [" ".join("abcdefghijklmnop")], [None], id="sixteen words"),
    ],
)
def test_places(lines: list[str], headings: list[str], expected: list[int | None]) -> None:
    assert placed("\n".join(lines), headings) == expected


def test_the_span_is_that_of_the_heading() -> None:
    text = f"{PROSE} How to go on\n{PROSE}"
    (span,) = place_headings(text, ["How to go on"])
    assert span is not None
    assert text[slice(*span)] == "How to go on"


WORDS = st.sampled_from(["A", "B", "C", PROSE])


@given(st.lists(WORDS, max_size=9), st.lists(st.sampled_from("ABC"), max_size=5))
def test_no_alignment_places_more_headings(lines: list[str], headings: list[str]) -> None:
    """The plain twin: the weight of each choice of lines for each choice of headings."""

    def weight(at: int) -> int:
        return 16 if lines[at + 1 : at + 2] == [PROSE] else 10

    def best(count: int) -> int:
        return max(
            (
                sum(map(weight, at))
                for chosen in combinations(headings, count)
                for at in combinations(range(len(lines)), count)
                if [lines[line] for line in at] == list(chosen)
            ),
            default=0,
        )

    found = [line for line in placed("\n".join(lines), headings) if line is not None]
    assert all(before < after for before, after in pairwise(found))
    assert sum(map(weight, found)) == max(best(count) for count in range(len(headings) + 1))


@given(st.text(max_size=300), st.lists(st.text(max_size=20), max_size=10))
def test_any_text_gives_rising_places_of_equal_words(text: str, headings: list[str]) -> None:
    end = 0
    for heading, span in zip(headings, place_headings(text, headings), strict=True):
        if span is not None:
            assert end <= span[0] < span[1]
            assert normal_form(text[slice(*span)]) == normal_form(heading)
            end = span[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headings", "lines"),
    [
        pytest.param(["A"] * 100_000, ["A"] * 100_000, id="all equal"),
        pytest.param([f"h{n}" for n in range(100_000)], [f"h{n}" for n in range(100_000, 0, -1)], id="in reverse"),
    ],
)
def test_a_hundred_thousand_headings(headings: list[str], lines: list[str]) -> None:
    begun = time.process_time()
    places = place_headings("\n".join(lines), headings)
    assert time.process_time() - begun < 30
    assert any(places)


@pytest.mark.parametrize("count", [10, 1000])
def test_equal_headings_all_find_a_place(count: int) -> None:
    text = "\n".join(["A", PROSE] * count)
    assert all(place_headings(text, ["A"] * count))
