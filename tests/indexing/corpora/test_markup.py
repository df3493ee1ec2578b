"""HTML as a browser's parser reads it, and by its tags alone; and Markdown as a parser of CommonMark reads it."""

import random
import time
from pathlib import Path

import pytest

from keystone.indexing.corpora import markup
from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.corpora.markup import Page, read_html, split_markup
from keystone.indexing.structures.markup import read_html as read_blocks

KEPT = "The river rose by two metres."


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(f"<title>T</title><script><!-- old browsers\nvar a;\n</script>{KEPT}", id="script"),
        pytest.param(f"<script>s.replace('<!--', '');</script><p>{KEPT}", id="string of a script"),
        pytest.param(f"<style><!-- p {{}} </style><p>{KEPT}", id="style"),
        pytest.param(f"<a title='<!-- x'></a><p>{KEPT}", id="attribute"),
        pytest.param(f"<textarea><style> </textarea><p>{KEPT}", id="style in a textarea"),
        pytest.param(f"<textarea><!-- </textarea><p>{KEPT}", id="textarea"),
        pytest.param(f"<title><!-- a</title><p>{KEPT}", id="title"),
        pytest.param(f"<script><!-- <script> </script> --></script><p>{KEPT}", id="script in a script"),
        pytest.param(f"<!--> <p>{KEPT}<!-- -- > --!>", id="short comments"),
        pytest.param("<p>The river <![CDATA[rose by]]> two metres.", id="CDATA"),
        pytest.param(f"<script>//<![CDATA[\nvar a = '<p>';\n//]]></script><p>{KEPT}", id="CDATA in a script"),
        pytest.param(f"<a title='a <b> c' href=\"<p>\">{KEPT}</a>", id="tags in attributes"),
        pytest.param(f"<a title=a<b>{KEPT}</a>", id="an attribute without quotes"),
        pytest.param(f"{KEPT}<table title='<!--'>", id="the end"),
        pytest.param(f"<body></body></html>{KEPT}", id="after the end"),
        pytest.param(f"<b><p>The river</b> rose<i></p> by two metres.{'</x>' * 9}", id="broken nesting"),
        pytest.param("<p>The&#32;river&nbsp;rose by two metres&period;", id="entities"),
    ],
)
def test_the_text_of_a_page_survives(page: str) -> None:
    assert " ".join(read_html(page).text.split()).removeprefix("<style> ").removeprefix("<!-- ") == KEPT
    seen = " ".join(page[block.start : block.end] for block in read_blocks(page))
    assert "metres" in seen.replace("&nbsp;", " ")
    assert "var" not in seen


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<select><option>One<option>Two</select>End", "One\n\nTwo\n\nEnd"),
        ("<table><tr><td>a<td>b<tr><th>c</table>d", "a\n\nb\n\nc\n\nd"),
        ("<button>Save</button><button>Close</button>", "Save\n\nClose"),
        ("<dl><dt>a<dd>b</dl>", "a\n\nb"),
        ("<frameset><noframes>hello <b>x</b></noframes></frameset>", "hello x"),
        ("a<iframe><p>no</p></iframe><noembed>no</noembed>b", "ab"),
        ("<svg><title>no</title><style/></svg>a", "a"),
        ("hyphen&shy;ated", "hyphenated"),
        ('<?xml version="1.0"?><html><head><title/><script src="x"/></head><body>a</body></html>', "a"),
        ('<html xmlns="http://www.w3.org/1999/xhtml"><head><script src="x" /></head><body>a</body></html>', "a"),
        ("1 < 2 &amp;lt; 3 <3", "1 < 2 &lt; 3 <3"),
        ("", ""),
    ],
)
def test_elements_are_kept_apart(page: str, expected: str) -> None:
    assert read_html(page).text == expected


PIECES = (
    *"abc abc abc".split(" "),
    *(f"<{name}>" for name in "p div b i li h2 br img/ span em pre blockquote".split()),
    *(f"</{name}>" for name in "p div b i li h2 span em pre blockquote x".split()),
    *("<!-- c -->", "<!-->", "<!-- <p> --!>", "<?pi x>", "<!doctype html>", "</ x>", "< ", "&amp;", "&lt;p&gt;", "<3"),
    *("<script>w('<!--')</script>", "<style><!-- </style>", "<textarea><b><!--</textarea>", "<script><!--</script>"),
    *("<a title='<!--'>", '<a href="</p>"x=">', "<a b=c'd>", "<a b = 'x>y'>", "<a / b/>", "<a =x=>", "</p a='>'>"),
)


@pytest.mark.parametrize(
    ("declared", "text", "encoding"),
    [
        ('<meta charset="windows-1251">', "\u041f\u0440", "cp1251"),
        (
            '<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1">',
            "caf\u00e9 \u201cq\u201d",
            "cp1252",
        ),
        ("<meta charset=iso-2022-jp>", "\u65e5\u672c", "iso2022_jp"),
        ('<?xml version="1.0" encoding="Shift_JIS"?>', "\u65e5\u672c", "cp932"),
        ("<meta charset=utf-8>", "\u65e5", "utf-8"),
        ("<meta charset=latin1>", "\u65e5", "utf-8"),
        ("<meta charset=wings>", "\u65e5", "utf-8"),
        ("<meta charset=rot13>", "\u65e5", "utf-8"),
        ("<meta charset=undefined>", "\u65e5", "utf-8"),
    ],
)
def test_a_page_is_read_in_the_encoding_that_it_declares(
    tmp_path: Path, declared: str, text: str, encoding: str
) -> None:
    page = f"{declared}<p>{text}".encode(encoding)
    (tmp_path / "a.html").write_bytes(page)
    (tmp_path / "b").write_bytes(b"<DOC>\n<DOCNO>1</DOCNO><DOCHDR>x</DOCHDR>" + page + b"</DOC>")
    assert [document.text for name in ("a.html", "b") for document in read_corpus(tmp_path / name)] == [text, text]


@pytest.mark.parametrize("seed", range(300))
def test_the_words_are_the_same_by_the_parser_and_by_the_tags(seed: int) -> None:
    chosen = random.Random(seed).choices(PIECES, k=30)
    page = "".join(f" w{at} {piece}" for at, piece in enumerate(chosen))
    by_parser, by_tags = read_html(page), markup._read_tags(page)
    assert by_tags.text.split() == by_parser.text.split()


@pytest.mark.parametrize("tag", ["div", "b", "ul><li", "table><tr><td", "i></x", "font"])
def test_a_page_that_nests_deep_is_read_whole_and_quickly(tag: str) -> None:
    began = time.process_time()
    assert "end" in read_html(f"<{tag}>" * 50_000 + "end").text
    many = "".join(f"<font a={at}>" for at in range(2_000)) + "<p>a" * 20_000
    assert read_html(many).text.count("a") == 20_000
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "page", ["<h1>A <i>b</i></h1><p>c<script>no</script><title>T</title><template>no</template>d<h2>E<h3>F</h3>g"]
)
def test_a_page_that_nests_deep_has_the_same_title_and_headings(page: str) -> None:
    expected = Page("T", ["A b", "E", "F"], "A b\n\ncd\n\nE\n\nF\n\ng")
    assert markup._read_tags(page) == read_html(page) == read_html(page, main=True) == expected


def test_a_comment_of_sgml_that_nothing_ends_is_text() -> None:
    found = "".join(text for text, _ in split_markup("<a>1<!-- x -->2 <!-- 3</a>"))
    assert found == "12 <!-- 3"


def test_sgml_keeps_cdata_and_brackets_that_open_no_tag() -> None:
    found = list(split_markup("<a>1 <b and 2<![CDATA[ <c> &amp; ]]><!-- <d> -->x</a>"))
    assert found == [("", "a"), ("1 <b and 2 <c> &amp; x", "/a"), ("", "")]


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        pytest.param("```sh\n# a comment\n```\n\n# Title\n", ["Title"], id="a comment in a fence"),
        pytest.param("~~~\n# a comment\n", [], id="an open fence"),
        pytest.param("x\n\n    # code\n\n## Part", ["Part"], id="indented code"),
        pytest.param("<!--\n# a\n-->\n\n# b", ["b"], id="a comment of HTML"),
        pytest.param("Title\n=====\n\nPart\n---\n", ["Title", "Part"], id="underlined headings"),
        pytest.param("# **B** `c` [l](u) &amp; ![p](i) <b>x</b> \\*", ["B c l & p x *"], id="text without marks"),
        pytest.param("---\ntitle: X\nby: y\n---\n\n# Z", ["Z"], id="settings before the text"),
        pytest.param("---\n\nx\n\n# A\n\n---\n\n# B", ["A", "B"], id="a rule before the text"),
        pytest.param("#\n\n## a ##\n\n#no", ["a"], id="an empty one, closing marks, and none"),
        pytest.param("# " + "*a " * 1000, [" ".join(["*a"] * 1000)], id="a very long one stays as it is"),
    ],
)
def test_headings_are_found(tmp_path: Path, text: str, headings: list[str]) -> None:
    (tmp_path / "a.md").write_text(text)
    (document,) = read_corpus(tmp_path / "a.md")
    assert document.headings.split("\n") == (headings or [""])
    assert document.title == (headings[0] if headings else "a")
    assert document.text == text


@pytest.mark.parametrize("piece", ["> ", "- ", "[", "# a\n", "a\n=\n", "<a\n", "```\n", "[a]: b\n", "![", "*_"])
def test_any_markdown_is_read_in_time(tmp_path: Path, piece: str) -> None:
    (tmp_path / "a.md").write_text(piece * 10_000)
    assert len(list(read_corpus(tmp_path / "a.md"))) == 1
