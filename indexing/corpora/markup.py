"""The text of HTML and SGML. Any text can be read, also malformed markup, in time linear in its length."""

import html
import re
from collections.abc import Iterator

BLOCK_ELEMENTS = frozenset(
    "address article aside blockquote br dd div dl dt figure footer form h1 h2 h3 h4 h5 h6 header "
    "hr li main nav ol p pre section table td th tr ul".split()
)
"""Elements that begin on a line of their own."""

HIDDEN_ELEMENTS = frozenset("script style template noscript svg".split())
HEADING_ELEMENTS = frozenset("h1 h2 h3 h4 h5 h6".split())

_UNSEEN = re.compile(r"<!--.*?(?:-->|\Z)|<[!?][^<>]*+>", re.DOTALL)
_TAG = re.compile(
    r"""<(/?[a-z][^\s<>/]*+)           # no scan goes beyond the next "<": many unclosed tags stay linear
        (?: (?:[^<>"']++ | "[^"<]*+" | '[^'<]*+')*+ >   # attributes, quoted ones with ">" too
          | [^<>]*+ > )                                 # attributes with a stray quote""",
    re.IGNORECASE | re.VERBOSE,
)
_LONG_REFERENCE = re.compile(r"&#[0-9]{20,};?")


def split_markup(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of a tag and the text before it. The tag is `name`, `/name`, or empty at the end of the text.

    Names are in lower case. Entities are replaced; comments and declarations are dropped. `<name/>` gives both tags.
    """
    text = _UNSEEN.sub("", text)
    at = 0
    for tag in _TAG.finditer(text):
        name = tag[1].lower()
        yield _unescape(text[at : tag.start()]), name
        if text[tag.end() - 2] == "/":
            yield "", f"/{name}"
        at = tag.end()
    yield _unescape(text[at:]), ""


def _unescape(text: str) -> str:
    """Replace entities by characters. A number beyond all characters becomes U+FFFD, as the HTML standard demands."""
    return html.unescape(_LONG_REFERENCE.sub("\ufffd", text)) if "&" in text else text


def tidy_lines(text: str) -> str:
    """Remove needless space within lines, and leave at most one blank line between two lines."""
    lines = [re.sub(r"[ \t\r\f\v]+", " ", line).strip() for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def read_html(page: str) -> tuple[str, list[str], str]:
    """Title, headings and visible text of a page; one blank line separates blocks."""
    title: list[str] = []
    headings: list[list[str]] = []
    parts: list[str] = []
    inside: list[str] = []
    for text, tag in split_markup(page):
        if HIDDEN_ELEMENTS.isdisjoint(inside):
            (title if inside[-1:] == ["title"] else parts).append(text)
            if inside and inside[-1] in HEADING_ELEMENTS:
                headings[-1].append(text)
        name = tag.removeprefix("/")
        if name in BLOCK_ELEMENTS:
            parts.append("\n\n")
        if tag != name:
            if name in inside:
                del inside[len(inside) - 1 - inside[::-1].index(name) :]
        elif name not in inside and (name in HIDDEN_ELEMENTS or name in HEADING_ELEMENTS or name == "title"):
            inside.append(name)
            if name in HEADING_ELEMENTS:
                headings.append([])
    found = [" ".join("".join(heading).split()) for heading in headings]
    return " ".join("".join(title).split()), [heading for heading in found if heading], tidy_lines("".join(parts))
