"""Markup: any text comes back from a parser as it was, or as escapes, and never as an element."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.runs.report.html.markup import element, embed_numbers, isolate, join


class Reader(HTMLParser):
    """Collects the tags, the attributes and the text of a page."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.values: dict[str, str | None] = {}
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def escape_controls(text: str) -> str:
    """The characters that a page shows as escapes, one by one."""
    obeyed = {*map(chr, range(32)), *map(chr, range(127, 160))} - {"\t", "\n"}
    obeyed |= {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
    shown = (
        c.encode("unicode_escape").decode() if c in obeyed or "\ud800" <= c <= "\udfff" else c
        for c in text.replace("\r\n", "\n")
    )
    return "".join(shown)


anything = st.text(st.characters() | st.sampled_from("<>&\"'/-]\0\r\n\u202e\ud800"))


@given(anything, anything)
def test_texts_of_elements_and_attributes_come_back(text: str, value: str) -> None:
    markup = element("p", text, element("b", text), data_value=value)
    assert markup.encode()
    read = Reader(markup)
    assert read.tags == ["p", "b"]
    assert read.text == 2 * escape_controls(text)
    assert read.values == {"data-value": escape_controls(value)}


def test_elements_have_attributes_by_their_values() -> None:
    assert element("input", type="search", hidden=True, open=False, id=None) == '<input type="search" hidden>'
    assert element("p", 1, element("br"), class_="a") == '<p class="a">1<br></p>'
    assert isolate("a") == "<bdi>a</bdi>"
    assert isolate("a", "p") == '<p dir="auto">a</p>'
    assert join("<", element("b", ">")) == "&lt;<b>&gt;</b>"


def test_only_numbers_are_embedded() -> None:
    assert embed_numbers([[1, 2.5, None]], id="n") == '<script type="application/json" id="n">[[1,2.5,null]]</script>'
    with pytest.raises(TypeError, match="found a text"):
        embed_numbers([[1, "</script>"]])
    with pytest.raises(ValueError, match="not JSON compliant"):
        embed_numbers([float("nan")])
