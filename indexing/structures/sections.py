"""Section trees: a document's title, its headings as inner nodes, its paragraphs as content (RDR2, section 3.1)."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from keystone.indexing.structures.blocks import Block, content_blocks, paragraphs
from keystone.indexing.structures.headings import normal_form, place_headings
from keystone.indexing.structures.markup import read_html, read_markdown, read_wikitext
from keystone.indexing.structures.tree import Node, Tree
from keystone.indexing.types import Document

LONGEST_RUN = 3
"""Headings one right after the other that are read as section, sub-section and so on; longer runs begin as a menu."""

BACK_MATTER = frozenset(
    ("see also", "references", "external links", "further reading", "notes", "sources", "bibliography", "footnotes")
)
"""Titles of sections without content of their own. A title must equal one: "Energy sources" is a section."""

CONTENTS = frozenset(("contents", "table of contents"))

_NUMBER = re.compile(r"(\d{1,3}(?:\.\d{1,3})*)\.?\s")


def read_plain(document: Document) -> list[Block]:
    """The blocks of a document that lists its headings one a line, as MS MARCO V2.1 does (see `place_headings`).

    The list has no levels. They come from numbers ("2.1" below "2"). A heading right above another heading is its
    parent. A heading with text on both sides is a sibling of the one before it. The function takes the lines of a table
    of contents or a longer menu as content, and not as headings. It does the same with a line without text below it,
    the title, and the titles of back matter.
    """
    text = document.text
    names = [name for name in document.headings.split("\n") if normal_form(name)]
    dropped = BACK_MATTER | CONTENTS | {normal_form(document.title)}
    names = [name for name in names if normal_form(name) not in dropped]
    spans = [span for span in place_headings(text, names) if span is not None]
    later = Counter(normal_form(text[start:end]) for start, end in spans)
    blocks = _blocks_between(text, 0, spans[0][0] if spans else len(text))
    run: list[tuple[int, int]] = []
    level, levels = 1, dict[str, int]()
    in_contents = False
    for span, following in pairwise([*spans, (len(text), len(text))]):
        below = _blocks_between(text, span[1], following[0])
        form = normal_form(text[slice(*span)])
        later[form] -= 1
        in_contents = later[form] > 0 and (in_contents or not below)
        if in_contents:
            blocks += [*_lines(text, [*run, span]), *below]
            run = []
            continue
        run.append(span)
        if below:
            blocks += _lines(text, run[:-LONGEST_RUN])
            headings = _leveled(text, run[-LONGEST_RUN:], level, levels)
            level = headings[-1].level
            blocks += [*headings, *below]
            run = []
    return blocks + _lines(text, run)


FORMATS: dict[str, Callable[[Document], list[Block]]] = {
    "headings": read_plain,
    "markdown": lambda document: _without_back_matter(read_markdown(document.text)),
    "html": lambda document: _without_back_matter(read_html(document.text)),
    "wikitext": lambda document: _without_back_matter(read_wikitext(document.text)),
}
"""How the headings of a document are given: listed beside plain text, or marked up in the text."""


def section_tree(document: Document, format: str = "headings", lead: str = "") -> Tree:
    """The section tree of a document; its root is the title. `KeyError` for an unknown format.

    Each heading has content below it. If `lead` is not empty, the content before the first heading stands below a
    heading of this name. Marked-up sections of back matter are left out with all below them.
    """
    blocks = _with_lead(FORMATS[format](document), lead)
    root = Node(0, None, "heading", 0, 0, 0, document.title)
    nodes = [root]
    path: list[tuple[Node, int]] = []
    for block in _without_empty(blocks):
        rank = block.level if block.kind == "heading" else _CONTENT_RANK + block.level
        while path and path[-1][1] >= rank:
            path.pop()
        parent = path[-1][0] if path else root
        node = Node(len(nodes), parent.id, block.kind, block.start, block.end, block.level, block.label)
        nodes.append(node)
        path.append((node, rank))
    return Tree(document.id, tuple(nodes))


_CONTENT_RANK = 1 << 20
"""Content stands below every heading, and below content of a smaller depth within lists."""


def _blocks_between(text: str, start: int, end: int) -> list[Block]:
    return [block for span in paragraphs(text, start, end) for block in content_blocks(text, *span)]


def _lines(text: str, spans: Sequence[tuple[int, int]]) -> list[Block]:
    return [block for start, end in spans for block in content_blocks(text, start, end)]


def _leveled(text: str, run: Sequence[tuple[int, int]], last: int, levels: dict[str, int]) -> list[Block]:
    """The headings of a run, each one level below the one before it; `levels` gets the levels of their numbers.

    The first has the level that its number gives: that of the number before it, or one below that of its section. If
    there is no such number, a heading alone has the level `last`, and a run begins at level 1.
    """
    found: list[Block] = []
    for start, end in run:
        label = " ".join(text[start:end].split())
        number = match[1] if (match := _NUMBER.match(label)) else ""
        section, dot, place = number.rpartition(".")
        if found:
            level = found[-1].level + 1
        elif number and (before := f"{section}{dot}{int(place) - 1}") in levels:
            level = levels[before]
        else:
            level = levels[section] + 1 if section in levels else last if len(run) == 1 else 1
        if number:
            levels[number] = level
        found.append(Block("heading", start, end, level, label))
    return found


def _with_lead(blocks: list[Block], lead: str) -> list[Block]:
    if not lead or not blocks or blocks[0].kind == "heading":
        return blocks
    level = min((block.level for block in blocks if block.kind == "heading"), default=1)
    return [Block("heading", blocks[0].start, blocks[0].start, level, lead), *blocks]


def _without_back_matter(blocks: Sequence[Block]) -> list[Block]:
    kept: list[Block] = []
    left_out: int | None = None
    for block in blocks:
        if block.kind == "heading" and (left_out is None or block.level <= left_out):
            left_out = block.level if normal_form(block.label) in BACK_MATTER else None
        if left_out is None:
            kept.append(block)
    return kept


def _without_empty(blocks: Sequence[Block]) -> list[Block]:
    """The blocks without headings that have no content before the next heading of the same or a higher level."""
    kept: list[Block] = []
    waiting: list[Block] = []
    for block in blocks:
        if block.kind == "heading":
            while waiting and waiting[-1].level >= block.level:
                waiting.pop()
            waiting.append(block)
        else:
            kept += [*waiting, block]
            waiting = []
    return kept
