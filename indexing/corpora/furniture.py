"""The main part of a page of HTML: what is left without navigation, menus, search forms and notices about cookies.

The landmarks of HTML and ARIA decide (`main`, `nav`, `role="navigation"`), and then the names that authors give to such
parts. A part with the first heading of a page, or with much of its text, is never taken for furniture.
"""

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

MOST_OF_PAGE = 0.5
"""The share of a page's text that a part with the name of furniture may hold at most."""

LEAST_OF_PAGE = 0.2
"""The share of a page's text that a main part must hold; otherwise the whole page counts."""

STUB_WORDS = 30
"""The most words of a page that only leads to another one."""

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
