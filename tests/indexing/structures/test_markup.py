"""Markdown, HTML and wikitext: headings with their levels, content with its depth in lists."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.corpora.text import find_front_matter_end
from keystone.indexing.structures.blocks import Block
from keystone.indexing.structures.markup import read_html, read_markdown, read_wikitext


def read(reader: Callable[[str], list[Block]], text: str) -> list[str]:
    """`LEVEL# LABEL` for a heading, `DEPTH TEXT` for content."""
    return [
        f"{block.level}# {block.label}" if block.kind == "heading" else f"{block.level} {text[block.start : block.end]}"
        for block in reader(text)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("# A\n## B ##\n####### C", ["1# A", "2# B", "0 ####### C"], id="one to six marks"),
        pytest.param("#A\n#\n# \nx", ["0 #A", "0 x"], id="a mark without a blank is text, an empty heading nothing"),
        pytest.param("# A #b\n# C# \n## #", ["1# A #b", "1# C#"], id="marks in a heading"),
        pytest.param("A\n===\nB\n---\nx", ["1# A", "2# B", "0 x"], id="underlined"),
        pytest.param("A\nb\n===", ["1# A b"], id="an underlined paragraph"),
        pytest.param("a\n\n---\n\nb\n* * *", ["0 a", "0 b"], id="separators"),
        pytest.param("```py\n# no\n```\n# A", ["0 ```py\n# no\n```", "1# A"], id="a fence"),
        pytest.param(
            "````\n```\n# no\n````\n~~~\n# no", ["0 ````\n```\n# no\n````", "0 ~~~\n# no"], id="fences in fences"
        ),
        pytest.param("    # no\n\n   # A", ["0 # no", "1# A"], id="indented code"),
        pytest.param(
            "<!-- a -->\n# A\n<!--\n# no\n-->\nx", ["0 <!-- a -->", "1# A", "0 <!--\n# no\n-->", "0 x"], id="comments"
        ),
        pytest.param("a\nb\n\nc", ["0 a\nb", "0 c"], id="paragraphs"),
        pytest.param("a\n- b\n  c\n  - d\n1. e\n\nf", ["0 a", "1 b\n  c", "2 d", "1 e", "0 f"], id="lists"),
        pytest.param("- a\n\n  b\n- c", ["1 a", "1 b", "1 c"], id="a paragraph in an item"),
        pytest.param("- a\n---\nb", ["1 a", "0 b"], id="an item is not underlined"),
        pytest.param("-5 degrees\n*a* b\n1.5 c", ["0 -5 degrees\n*a* b\n1.5 c"], id="no items"),
        pytest.param("# A\r\nx\r\n", ["1# A", "0 x"], id="line ends of Windows"),
        pytest.param("---\na: b\n---\n# A\nx", ["0 ---\na: b\n---", "1# A", "0 x"], id="settings before the text"),
        pytest.param("---\r\na: b\r\n---\r\n# A", ["0 ---\r\na: b\r\n---", "1# A"], id="settings of Windows"),
        pytest.param("---\n \nx\n\n# A\n\n---\n\ny", ["0 x", "1# A", "0 y"], id="a rule is no beginning of settings"),
    ],
)
def test_markdown(text: str, expected: list[str]) -> None:
    assert read(read_markdown, text) == expected


PIECES = ["# A", "## B ##", "C", "===", "---", "", "```", "~~~", "x y", "    # code", "####### D", "#", "E #"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("\n".join))
def test_markdown_headings_are_those_of_markdown_it(text: str) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    tokens = markdown_it.MarkdownIt().parse(text[find_front_matter_end(text) :])
    expected = [
        (int(token.tag[1]), " ".join(inline.content.split()))
        for token, inline in pairwise(tokens)
        if token.type == "heading_open" and inline.content
    ]
    assert [(block.level, block.label) for block in read_markdown(text) if block.kind == "heading"] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("<h1>A</h1>x<h2 class='b'>B</H2>y", ["1# A", "0 x", "2# B", "0 y"], id="headings"),
        pytest.param("<h1> A &amp;\n<i>B</i> </h1>", ["1# A & B"], id="a label without tags and entities"),
        pytest.param("<h1><div>A</div></h1><h2><p>B</p>c", ["1# A", "0 B", "0 c"], id="blocks in headings"),
        pytest.param("<p>a <b>b</b> c<p>d", ["0 a <b>b</b> c", "0 d"], id="paragraphs"),
        pytest.param("<ul><li>a<ol><li>b</ol><li>c</ul>d", ["1 a", "2 b", "1 c", "0 d"], id="lists"),
        pytest.param("a</ul></ul><ul><li>b", ["0 a", "1 b"], id="lists that were never open"),
        pytest.param("<script>'<h1>no</h1>'</script><STYLE>x</STYLE>a", ["0 a"], id="scripts and styles"),
        pytest.param("<html><!-- <h1>no</h1> -->a<!-- b", ["0 a"], id="comments"),
        pytest.param("<html>a<script>b", ["0 a"], id="a script that never ends"),
        pytest.param("<p>a</p> Use <!-- or\n\nb", ["0 a", "0 Use <!-- or\n\nb"], id="prose about comments"),
        pytest.param("<p>a</p> A <script> or <title>.\n\nb", ["0 a", "0 A <script> or <title>.\n\nb"], id="about tags"),
        pytest.param("<!DOCTYPE html><html><title>t</title><body>a", ["0 a"], id="the title is not seen"),
        pytest.param("1 < 2 <3", ["0 1 < 2 <3"], id="brackets that are no tags"),
        pytest.param("&nbsp;<p>&nbsp; a", ["0 a"], id="hard blanks"),
        pytest.param(f"<h1>{'a ' * 300}", [f"0 {('a ' * 300).strip()}"], id="a heading that is never closed"),
    ],
)
def test_html(text: str, expected: list[str]) -> None:
    assert read(read_html, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("== A ==\n===B===\n= C =", ["2# A", "3# B", "1# C"], id="headings"),
        pytest.param("== A ===\n== B\n====\na = b", ["2# A =", "0 == B", "0 ====", "0 a = b"], id="uneven marks"),
        pytest.param("a\n* b\n** c\n:* d\n# e", ["0 a", "1 b", "2 c", "2 d", "1 e"], id="lists"),
        pytest.param("{{A\n| x = {{b}}\n== no ==\n}} c\nd", ["0 c", "0 d"], id="templates"),
        pytest.param("{|\n|-\n| {{x}}\n|}\na {{b}} c", ["0 a {{b}} c"], id="tables"),
        pytest.param("<!--\n== no ==\n-->{{x}}\n== A ==", ["2# A"], id="comments"),
        pytest.param("{{a\n== A ==\n{|\n|}", ["0 {{a", "2# A"], id="a template that never ends"),
    ],
)
def test_wikitext(text: str, expected: list[str]) -> None:
    assert read(read_wikitext, text) == expected
