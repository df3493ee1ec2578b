"""The text of HTML, by the parser of a browser, and of SGML. Any text can be read, even malformed markup.

The parser is lexbor (https://lexbor.com), which follows the HTML standard to the letter.

The main part of a page of HTML: what is left without navigation, menus, search forms and notices about cookies.

The landmarks of HTML and ARIA decide (`main`, `nav`, `role="navigation"`), and then the names that authors give to such
parts. A part with the first heading of a page, or with much of its text, is never taken for furniture.
"""

import codecs
import html
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from keystone.indexing.corpora.tags import CDATA, CDATA_END, find_tags

BLOCK_ELEMENTS = frozenset(
    "address article aside blockquote body br button caption center dd details dialog dir div dl dt fieldset "
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li listing main menu nav ol "
    "optgroup option p plaintext pre search section select summary table tbody td textarea tfoot th thead tr ul video "
    "xmp".split()
)
"""Elements that begin on a line of their own."""

HIDDEN_ELEMENTS = frozenset("script style template noscript svg iframe noembed".split())
HEADING_ELEMENTS = frozenset("h1 h2 h3 h4 h5 h6".split())

MOST_WORK = 2 * 10**7
"""The most tags of a page times the depth to which they nest. The parser's time and memory grow with this product."""

_EMPTY_ELEMENTS = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_ENDED_ELEMENTS = frozenset("colgroup dd dt li optgroup option p rp rt tbody td tfoot th thead tr".split())
"""Elements whose end tag may be missing."""

_WIDE_SPACE = re.compile(r"[ \t\r\f\v]{2,}|[\t\r\f\v]")
_BLANK_LINES = re.compile(r"\n{3,}")
_LONG_REFERENCE = re.compile(r"&#[0-9]{20,};?")


DECLARED_BYTES = 1024
"""The first bytes of a page, in which it declares its encoding (WHATWG HTML, section 13.2.3.2)."""

_CHARSET = re.compile(rb"""<(?:meta\s[^>]*\bcharset\s*=|\?xml\s[^>]*\bencoding\s*=)\s*["']?([\w.:-]+)""", re.IGNORECASE)
_WIDER = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949",
}  # fmt: skip
"""The encodings that browsers read in place of declared ones (WHATWG Encoding), by Python's names."""
_XHTML = re.compile(r"<\?xml\s|http://www\.w3\.org/1999/xhtml")
_EMPTY = re.compile(r"<(script|style|title|textarea|iframe|noscript)(\s[^<>]*?)?\s*/>", re.IGNORECASE)
"""An element that is empty in XML, and that the parser of HTML would take for open."""


def find_encoding(source: bytes, start: int = 0) -> str:
    """Python's name of a source's encoding: UTF-8 if that fits, or else the one that the page from `start` on declares.

    Encodings of seven bits go first, since UTF-8 always fits them. The result is also UTF-8 for an encoding that is
    unknown, or that does not read its own name.
    """
    declared = _CHARSET.search(source, start, start + DECLARED_BYTES)
    if not declared:
        return "utf-8"
    label = declared[1].decode()
    try:
        name = codecs.lookup(label).name
        if name.startswith("utf") or declared[1].decode(name) != label:
            return "utf-8"
    except (LookupError, UnicodeError):
        return "utf-8"
    if name.startswith(("iso2022", "hz")):
        return name
    try:
        source.decode()
    except UnicodeDecodeError:
        return _WIDER.get(name, name)
    return "utf-8"


class Page(NamedTuple):
    """What a page of HTML shows, its blocks between blank lines. A stub only leads to another page."""

    title: str
    headings: list[str]
    text: str
    is_stub: bool = False


def split_markup(text: str, sgml: bool = True) -> Iterator[tuple[str, str]]:
    """Pairs of a tag and the text before it. The tag is `name`, `/name`, or empty at the end of the text.

    Names are in lower case. Entities are replaced; comments and declarations are dropped, and the text of a CDATA
    section is kept. `<name/>` gives both tags.
    """
    at, before = 0, ""
    for tag in find_tags(text, sgml):
        before += _unescape(text[at : tag.start])
        at = tag.end
        if tag.name == "CDATA":
            before += text[tag.start + len(CDATA) : at].removesuffix(CDATA_END)
        elif tag.name:
            yield before, f"/{tag.name}" if tag.closes else tag.name
            before = ""
            if text[at - 2] == "/" and not tag.closes:
                yield "", f"/{tag.name}"
    yield before + _unescape(text[at:]), ""


def _unescape(text: str) -> str:
    """Replace entities by characters. A number beyond all characters becomes U+FFFD, as the HTML standard demands."""
    return html.unescape(_LONG_REFERENCE.sub("\ufffd", text)) if "&" in text else text


def tidy_lines(text: str) -> str:
    """Remove needless space within lines and soft hyphens, and leave at most one blank line between two lines."""
    lines = map(str.strip, _WIDE_SPACE.sub(" ", text.replace("\xad", "")).split("\n"))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


def read_html(page: str, main: bool = False) -> Page:
    """Title, headings and visible text of a page, or of its `main` part. A page that is too deep is read tag by tag."""
    if CDATA in page:
        page = _escape_cdata(page)
    if _XHTML.search(page, 0, DECLARED_BYTES):
        page = _EMPTY.sub(r"<\1\2></\1>", page)
    if _is_too_deep(page):
        return _read_tags(page)
    tree = LexborHTMLParser(page)
    node = tree.css_first("head title") or tree.css_first("title:not(svg title)")
    title = " ".join(node.text().split()) if node else ""
    if tree.root is None:
        return Page(title, [], "")
    for node in reversed(tree.root.css(_HIDDEN)):  # from the innermost on: their contents go with them
        node.decompose()
    if not main:
        return Page(title, *_read_tree(tree.root))
    is_stub = leads_elsewhere(tree)
    part = find_main_part(tree)
    return Page(title, *_read_tree(part), is_stub) if part else read_html(page)._replace(is_stub=is_stub)


def _read_tree(root: LexborNode) -> tuple[list[str], str]:
    """The headings and the text of a tree or a part of one. The tree is changed."""
    for node in root.css("noframes"):
        node.replace_with("\n\n" + read_html(node.text()).text + "\n\n")
    headings = [" ".join(heading.text().split()) for heading in root.css(_HEADING)]
    for node in root.css(_BLOCK):
        node.insert_before("\n\n")
        node.insert_after("\n\n")
    return [heading for heading in headings if heading], tidy_lines(root.text())


_HIDDEN = ",".join(sorted({*HIDDEN_ELEMENTS, "title"}))
_HEADING = ",".join(sorted(HEADING_ELEMENTS))
_BLOCK = ",".join(sorted(BLOCK_ELEMENTS - {"html"}))


def _escape_cdata(page: str) -> str:
    """The page with the text of its CDATA sections in place of them."""
    parts, at = [], 0
    for tag in find_tags(page):
        if tag.name == "CDATA":
            inside = page[tag.start + len(CDATA) : tag.end].removesuffix(CDATA_END)
            parts += [page[at : tag.start], html.escape(inside, quote=False)]
            at = tag.end
    return "".join([*parts, page[at:]])


def _is_too_deep(page: str) -> bool:
    """Whether the parser would take too long, or too much memory, by its tags and the depth of those left open."""
    tags = page.count("<")
    if tags * tags <= MOST_WORK:
        return False
    left_open = Counter[str]()
    depth = deepest = 0
    for tag in find_tags(page):
        if not tag.name or tag.name in _EMPTY_ELEMENTS or tag.name in _ENDED_ELEMENTS:
            continue
        step = 1 if not tag.closes else -1 if left_open[tag.name] else 0
        left_open[tag.name] += step
        depth += step
        deepest = max(deepest, depth)
    return deepest * tags > MOST_WORK


def _read_tags(page: str) -> Page:
    """Title, headings and visible text of a page by its tags alone, without regard to how its elements nest."""
    title: list[str] = []
    headings: list[list[str]] = []
    parts: list[str] = []
    unseen = heading = ""
    for text, tag in split_markup(page, sgml=False):
        if not unseen:
            parts.append(text)
            if heading:
                headings[-1].append(text)
        elif unseen == "title":
            title.append(text)
        name = tag.removeprefix("/")
        if name in BLOCK_ELEMENTS:
            parts.append("\n\n")
        if name in HEADING_ELEMENTS and not unseen:
            heading = name if tag == name else ""
            headings += [[]] if heading else []
        elif name in HIDDEN_ELEMENTS or name == "title":
            unseen = unseen or name if tag == name else "" if name == unseen else unseen
    found = [" ".join("".join(heading).split()) for heading in headings]
    return Page(" ".join("".join(title).split()), [heading for heading in found if heading], tidy_lines("".join(parts)))


MOST_OF_PAGE = 0.5
"""The largest share of a page's text that a part with the name of furniture may hold."""

LEAST_OF_PAGE = 0.2
"""The share of a page's text that a main part must hold; otherwise the whole page counts."""

STUB_WORDS = 30

_LANDMARKS = "nav, [role], [hidden], body > footer, body > header, a.headerlink, a.permalink, a.anchor-link"
_ROLES = frozenset("navigation search menu menubar dialog alertdialog contentinfo banner".split())
_NAMED = ", ".join(f"{tag}[class], {tag}[id]" for tag in "div section aside ul ol header footer table p a form".split())
_NAMES = frozenset(
    "breadcrumb breadcrumbs consent cookie cookies footer gdpr menu nav navbar navfooter navheader navigation pager "
    "pagination sidebar skip skiplink sphinxsidebar switcher".split()
)
_NAME = re.compile(r"[A-Z]?[a-z]+")
_HEADINGS = "h1, h2, h3, h4, h5, h6"


def find_main_part(tree: LexborHTMLParser) -> LexborNode | None:
    """The main part of a page, whose furniture is taken out of the tree; None if too little of the page is left."""
    body = tree.body
    if body is None:
        return None
    whole = _measure(body)
    for node in reversed(body.css(_LANDMARKS)):
        role = node.attributes.get("role")
        is_furniture = role in _ROLES or (role is None and node.tag not in ("body", "main"))
        if is_furniture and not node.css_first("h1, main"):
            node.decompose()
    rest = _measure(body)
    mains = body.css("main, [role=main]")
    if len(mains) == 1 and _measure(mains[0]) >= max(1, LEAST_OF_PAGE * rest):
        return mains[0]
    large = set[int]()
    for node in reversed(body.css(_NAMED)):
        if node.mem_id in large or not _is_named_furniture(node):
            continue
        if _measure(node) <= MOST_OF_PAGE * rest:
            node.decompose()
        else:
            _add_with_ancestors(node, large)
    return body if _measure(body) >= LEAST_OF_PAGE * whole else None


def leads_elsewhere(tree: LexborHTMLParser) -> bool:
    """Whether a page only leads to another one: it refreshes to an address, and has little text."""
    metas = (node.attributes for node in tree.css("meta[http-equiv=refresh i]"))
    leads = any("url" in (found.get("content") or "").lower() for found in metas)
    return leads and tree.body is not None and len(tree.body.text().split()) <= STUB_WORDS


def _is_named_furniture(node: LexborNode) -> bool:
    """Whether the class of a node names furniture, or the id of a node without headings, which may name a section."""
    by_class, by_id = (
        not _NAMES.isdisjoint(_NAME.findall((node.attributes.get(key) or "").lower())) for key in ("class", "id")
    )
    return (by_class or by_id) and not node.css_first("h1, main" if by_class else _HEADINGS)


def _add_with_ancestors(node: LexborNode | None, found: set[int]) -> None:
    while node is not None and node.mem_id not in found:
        found.add(node.mem_id)
        node = node.parent


def _measure(node: LexborNode) -> int:
    return len(node.text())
