"""The headings of Markdown are those that a parser of CommonMark finds, as plain text."""

from pathlib import Path

import pytest

from keystone.indexing.corpora.corpus import read_corpus


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
