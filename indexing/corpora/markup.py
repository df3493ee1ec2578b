"""The text of HTML and SGML: any text at all is read, in time linear in its length."""

import html
import re
from collections.abc import Iterator

BLOCKS = frozenset(
    "address article aside blockquote br dd div dl dt figure footer form h1 h2 h3 h4 h5 h6 header "
    "hr li main nav ol p pre section table td th tr ul".split()
)
"""Elements that begin on a line of their own."""

HIDDEN = frozenset("script style template noscript svg".split())
HEADINGS = frozenset("h1 h2 h3 h4 h5 h6".split())

_UNSEEN = re.compile(r"<!--.*?(?:-->|\Z)|<[!?][^<>]*+>", re.DOTALL)
_TAG = re.compile(
    r"""<(/?[a-z][^\s<>/]*+)           # no scan goes beyond the next "<": many unclosed tags stay linear
        (?: (?:[^<>"']++ | "[^"<]*+" | '[^'<]*+')*+ >   # attributes, quoted ones with ">" too
          | [^<>]*+ > )                                 # attributes with a stray quote""",
    re.IGNORECASE | re.VERBOSE,
)
_LONG_REFERENCE = re.compile(r"&#[0-9]{20,};?")


def markup(text: str) -> Iterator[tuple[str, str]]:
    """The text before each tag, and the tag: `name`, `/name`, or nothing at the end of the text.

    Names are in lower case, entities replaced, comments and declarations left out. `<name/>` is both tags.
    """
    text = _UNSEEN.sub("", text)
    at = 0
    for tag in _TAG.finditer(text):
        name = tag[1].lower()
        yield _unescaped(text[at : tag.start()]), name
        if text[tag.end() - 2] == "/":
            yield "", f"/{name}"
        at = tag.end()
    yield _unescaped(text[at:]), ""


def _unescaped(text: str) -> str:
    """Entities as characters; a reference to a number beyond all characters is U+FFFD, as HTML has it."""
    return html.unescape(_LONG_REFERENCE.sub("\ufffd", text)) if "&" in text else text


def tidy(text: str) -> str:
    """Lines without needless space, and at most one blank line between two."""
    lines = [re.sub(r"[ \t\r\f\v]+", " ", line).strip() for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def read_html(page: str) -> tuple[str, list[str], str]:
    """Title, headings and visible text of a page; blocks are parted by one blank line."""
    title: list[str] = []
    headings: list[list[str]] = []
    parts: list[str] = []
    inside: list[str] = []
    for text, tag in markup(page):
        if HIDDEN.isdisjoint(inside):
            (title if inside[-1:] == ["title"] else parts).append(text)
            if inside and inside[-1] in HEADINGS:
                headings[-1].append(text)
        name = tag.removeprefix("/")
        if name in BLOCKS:
            parts.append("\n\n")
        if tag != name:
            if name in inside:
                del inside[len(inside) - 1 - inside[::-1].index(name) :]
        elif name not in inside and (name in HIDDEN or name in HEADINGS or name == "title"):
            inside.append(name)
            if name in HEADINGS:
                headings.append([])
    found = [" ".join("".join(heading).split()) for heading in headings]
    return " ".join("".join(title).split()), [heading for heading in found if heading], tidy("".join(parts))
